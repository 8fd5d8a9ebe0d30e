"""Events: list and stream them. Webhooks: create, list, change, try, renew and delete them."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator

from postroom.calls.authentication import revocation
from postroom.calls.context import RequestContext
from postroom.calls.operation import inbox_of, message_of, operation
from postroom.calls.receipts import needs_read
from postroom.calls.request import (
    Accepts,
    Id,
    InboxName,
    OptionalId,
    OptionalInboxName,
    Paged,
    Request,
    argument,
    change_of,
)
from postroom.errors import Forbidden
from postroom.model.event import (
    WEBHOOK_URL,
    DeliveryBody,
    Event,
    EventQuery,
    EventStream,
    EventType,
    Webhook,
    WebhookChange,
    WebhookDelivery,
    WebhookPing,
    new_webhook_secret,
)
from postroom.model.inbox import Visible
from postroom.model.key import OWNER, Scope
from postroom.model.page import Page, Slice
from postroom.model.view import only, view_of
from postroom.pipeline.apply_rules import stopped_webhooks, webhook_refusal
from postroom.pipeline.webhooks import body_of, ping
from postroom.rules.definition import authority_of

KEEP_ALIVE_S = 15.0
"""A stream without events sends a keep-alive after this time."""

TYPES: tuple[str, ...] = get_args(EventType)


def _known(name: str) -> str:
    if name not in TYPES:
        close = difflib.get_close_matches(name, TYPES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the types are {', '.join(TYPES)}"
        raise ValueError(f"there is no event type {name}; {hint}")
    return name


EventName = Annotated[str, AfterValidator(_known), Accepts({"enum": list(TYPES)})]
_Inbox = Annotated[OptionalInboxName, argument("Only this inbox.", "inb_7k2m9q")]
_Types = Annotated[
    list[EventName], argument("Only these types.", ["message.received"], max_length=20)
]


class ListEvents(Paged):
    """List events of mail, oldest first. stream_events sends new ones as they happen."""

    inbox_id: _Inbox = None
    message_id: Annotated[OptionalId, argument("Only this message.", "msg_4h8t2w")] = None
    types: _Types = []
    sort: Annotated[Literal["newest", "oldest"], argument("Sort order.", "newest")] = "oldest"


@operation(Scope.READ)
async def list_events(ctx: RequestContext, request: ListEvents) -> Page[Event]:
    if request.inbox_id is not None:
        await inbox_of(ctx, request.inbox_id)
    if request.message_id is not None:
        await message_of(ctx, request.message_id)
    query = EventQuery(
        visible=ctx.visible,
        inbox_id=request.inbox_id,
        message_id=request.message_id,
        types=tuple(request.types),
        page=ctx.cursors.slice(request),
        newest_first=request.sort == "newest",
    )
    page = ctx.cursors.page(request, await ctx.store.events(query))
    return replace(page, results=tuple(event.visible_to(ctx.visible) for event in page.results))


class StreamEvents(Request):
    """Stream events as they happen, optionally after a given event.

    Imported mail is not included.
    """

    inbox_id: _Inbox = None
    types: _Types = []
    since: Annotated[Id | None, argument("Begin after this event.", "evt_8c1v6d")] = None


@operation(Scope.READ)
async def stream_events(ctx: RequestContext, request: StreamEvents) -> EventStream:
    if request.inbox_id is not None:
        await inbox_of(ctx, request.inbox_id)
    visible = ctx.visible if request.inbox_id is None else only(request.inbox_id)
    since = await ctx.store.newest_event(visible)
    if request.since is not None:
        since = await ctx.store.event_number(request.since, ctx.visible)
    return EventStream(_events(ctx, request, visible, since))


async def _events(
    ctx: RequestContext, request: StreamEvents, visible: Visible, since: int
) -> AsyncIterator[Event | None]:
    def matches(event: Event) -> bool:
        is_asked_for = not request.types or event.type in request.types
        return visible.sees(event.inbox_id) and is_asked_for and not event.is_imported

    with ctx.watch.subscribe(ctx.store, matches, visible) as subscription:
        events = aiter(ctx.watch.after(subscription, since))
        async with revocation(ctx) as revoked:
            while True:
                next_event = asyncio.ensure_future(anext(events, None))
                try:
                    while not await _is_done_in_time(next_event, revoked):
                        yield None
                    if revoked.done() or (watched := next_event.result()) is None:
                        return
                    yield watched.event.visible_to(ctx.visible)
                finally:
                    next_event.cancel()


async def _is_done_in_time(*tasks: asyncio.Future[Any]) -> bool:
    """Whether a task is done within `KEEP_ALIVE_S`."""
    first = asyncio.FIRST_COMPLETED
    return bool((await asyncio.wait(tasks, timeout=KEEP_ALIVE_S, return_when=first))[0])


WebhookId = Annotated[Id, argument("The webhook.", "whk_2f7j4s")]


class OneWebhook(Request):
    """A request about one webhook."""

    webhook_id: WebhookId


class CreateWebhook(Request):
    """Send events to a URL. The secret is shown only once."""

    url: Annotated[
        str,
        argument(
            "The URL to send events to.", "https://example.com/hook", min_length=8, max_length=2000
        ),
        Accepts({"pattern": WEBHOOK_URL}),
    ]
    types: Annotated[
        list[EventName],
        argument("Only these types; default: all.", ["message.received"], max_length=20),
    ] = []
    inboxes: Annotated[
        list[InboxName] | None,
        argument(
            "Only these inboxes; default: all.", ["inb_7k2m9q"], min_length=1, max_length=1000
        ),
    ] = None


_RECEIVES_MAIL = "a webhook receives data about incoming mail"


@operation(Scope.ADMIN)
async def create_webhook(ctx: RequestContext, request: CreateWebhook) -> Webhook:
    needs_read(ctx, _RECEIVES_MAIL)
    ctx.webhook_client.check(request.url)
    for inbox_id in request.inboxes or ():
        await inbox_of(ctx, inbox_id)
    if request.inboxes is None:
        await _refuse_without_inboxes(ctx)
    inboxes = ctx.visible if request.inboxes is None else view_of(request.inboxes)
    webhook = Webhook(
        id=ctx.new_id("whk"),
        url=request.url,
        types=tuple(dict.fromkeys(request.types)),
        inboxes=inboxes,
        created_at=ctx.clock().replace(microsecond=0),
        secret=new_webhook_secret(),
        made_by=authority_of(ctx.caller),
    )
    await ctx.store.add_webhook(webhook)
    return webhook


async def _refuse_without_inboxes(ctx: RequestContext) -> None:
    if ctx.is_limited and not (await ctx.store.inboxes(ctx.visible, Slice(limit=1))).total:
        raise Forbidden(
            "this key may see no inbox, so the webhook would get no events; create the webhook "
            "with a key that may see its inboxes"
        )


class ListWebhooks(Paged):
    """List the webhooks, oldest first; their secrets are not shown."""


@operation(Scope.ADMIN)
async def list_webhooks(ctx: RequestContext, request: ListWebhooks) -> Page[Webhook]:
    found = await ctx.store.webhooks(ctx.visible, ctx.cursors.slice(request))
    stopped = await stopped_webhooks(ctx, found.rows)
    rows = tuple(replace(row, stopped=stopped.get(row.id)) for row in found.rows)
    return ctx.cursors.page(request, replace(found, rows=rows))


class GetWebhook(OneWebhook):
    """Get one webhook; its secret is not shown."""


@operation(Scope.ADMIN)
async def get_webhook(ctx: RequestContext, request: GetWebhook) -> Webhook:
    found = await ctx.store.webhook(request.webhook_id, ctx.visible)
    return replace(found, stopped=(await stopped_webhooks(ctx, [found])).get(found.id))


class UpdateWebhook(OneWebhook):
    """Change the URL or the types of a webhook, or disable it; events that happen meanwhile are not
    delivered.
    """

    constraints = (
        change_of(("url", "types", "enabled"), "give url, types or enabled: what to change"),
    )
    url: Annotated[
        Annotated[str, Accepts({"pattern": WEBHOOK_URL})] | None,
        argument("The new URL.", "https://example.com/hook", min_length=8, max_length=2000),
    ] = None
    types: Annotated[
        list[EventName] | None,
        argument("Only these types; an empty list: all.", ["message.received"], max_length=20),
    ] = None
    enabled: Annotated[bool | None, argument("Whether it receives events.", False)] = None


@operation(Scope.ADMIN)
async def update_webhook(ctx: RequestContext, request: UpdateWebhook) -> Webhook:
    types = None if request.types is None else tuple(dict.fromkeys(request.types))
    change = WebhookChange(request.url, types, request.enabled)
    if request.url is not None:
        needs_read(ctx, _RECEIVES_MAIL)
        ctx.webhook_client.check(request.url)
        before = await ctx.store.webhook(request.webhook_id, ctx.visible)
        is_stopped = await webhook_refusal(ctx, before.made_by, before.inboxes)
        authority = authority_of(ctx.caller)
        # Who names the receiver is who it ends with; the owner corrects it for its key.
        if authority != OWNER.key_id and not is_stopped:
            change = replace(change, made_by=authority)
    return await ctx.store.update_webhook(request.webhook_id, change, ctx.visible)


class PingWebhook(OneWebhook):
    """Send a signed request of the type webhook.ping to a webhook now, and return the response."""


@operation(Scope.ADMIN, waits=True)
async def ping_webhook(ctx: RequestContext, request: PingWebhook) -> WebhookPing:
    url, secrets = await ctx.store.webhook_target(request.webhook_id, ctx.visible, ctx.clock())
    posted = await ping(ctx, request.webhook_id, url, secrets)
    await ctx.store.record_audit()
    status: Literal["delivered", "failed"] = "delivered" if posted.is_success else "failed"
    return WebhookPing(request.webhook_id, status, posted.code, posted.detail)


class DeleteWebhook(OneWebhook):
    """Delete a webhook: it gets no more events."""


@operation(Scope.ADMIN, destroys=True)
async def delete_webhook(ctx: RequestContext, request: DeleteWebhook) -> None:
    await ctx.store.remove_webhook(request.webhook_id, ctx.visible)


class RenewWebhook(OneWebhook):
    """Create a new secret for a webhook; requests are also signed with the old one for a day.

    A webhook that stopped because its key lost a right resumes with your key, signed with the new
    secret only.
    """


@operation(Scope.ADMIN)
async def renew_webhook(ctx: RequestContext, request: RenewWebhook) -> Webhook:
    secret = new_webhook_secret()
    before = await ctx.store.webhook(request.webhook_id, ctx.visible)
    is_stopped = await webhook_refusal(ctx, before.made_by, before.inboxes)
    if is_stopped:
        needs_read(ctx, _RECEIVES_MAIL)
    webhook = await ctx.store.renew_webhook(
        request.webhook_id,
        secret,
        ctx.visible,
        ctx.clock(),
        made_by=authority_of(ctx.caller) if is_stopped else None,
    )
    return replace(webhook, secret=secret)


class ListDeliveries(Paged):
    """List the deliveries of a webhook with their responses, newest first."""

    webhook_id: WebhookId


@operation(Scope.ADMIN)
async def list_deliveries(ctx: RequestContext, request: ListDeliveries) -> Page[WebhookDelivery]:
    found = await ctx.store.webhook_deliveries(
        request.webhook_id, ctx.visible, ctx.cursors.slice(request)
    )
    return ctx.cursors.page(request, found)


DeliveryId = Annotated[Id, argument("The delivery.", "dlv_9w3b7m")]


class GetDelivery(OneWebhook):
    """Get a delivery of a webhook with its body, as it would be sent now."""

    delivery_id: DeliveryId


@operation(Scope.ADMIN)
async def get_delivery(ctx: RequestContext, request: GetDelivery) -> DeliveryBody:
    needs_read(ctx, "the body has data about incoming mail")
    delivery, event = await ctx.store.webhook_delivery(
        request.webhook_id, request.delivery_id, ctx.visible
    )
    body = None if event is None else (await body_of(ctx, event)).decode()
    return DeliveryBody(delivery, body)


class Redeliver(OneWebhook):
    """Send a delivery to its webhook again."""

    delivery_id: DeliveryId


@operation(Scope.ADMIN)
async def redeliver(ctx: RequestContext, request: Redeliver) -> WebhookDelivery:
    return await ctx.store.redeliver(
        request.webhook_id, request.delivery_id, ctx.visible, ctx.clock()
    )
