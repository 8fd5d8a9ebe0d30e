"""Webhooks: create, list, change, try, renew and delete them; their deliveries."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from postroom.calls.context import RequestContext
from postroom.calls.operation import inbox_of, operation
from postroom.calls.receipts import needs_read
from postroom.calls.request import Accepts, Id, InboxName, Paged, Request, argument, change_of
from postroom.errors import Forbidden
from postroom.model.event import (
    WEBHOOK_URL,
    DeliveryBody,
    Webhook,
    WebhookChange,
    WebhookDelivery,
    WebhookPing,
    new_webhook_secret,
)
from postroom.model.key import Scope
from postroom.model.page import Page, Slice
from postroom.model.view import view_of
from postroom.operations.events import EventName
from postroom.pipeline.key_rights import stopped_webhooks, webhook_refusal
from postroom.pipeline.webhooks import body_of, ping
from postroom.rules.rights import authority_of

WebhookId = Annotated[Id, argument("The webhook.", "whk_2f7j4s")]


class CreateWebhook(Request):
    """Be told of events at a URL. The answer is the only one that shows the secret."""

    url: Annotated[
        str,
        argument("Where to tell it.", "https://example.com/hook", min_length=8, max_length=2000),
        Accepts({"pattern": WEBHOOK_URL}),
    ]
    types: Annotated[
        list[EventName],
        argument("Only these types; without: all.", ["message.received"], max_length=20),
    ] = []
    inboxes: Annotated[
        list[InboxName] | None,
        argument(
            "Only these inboxes; without: all.", ["inb_7k2m9q"], min_length=1, max_length=1000
        ),
    ] = None


@operation(Scope.ADMIN)
async def create_webhook(ctx: RequestContext, request: CreateWebhook) -> Webhook:
    needs_read(ctx, "a webhook is told what arrives")
    ctx.poster.check(request.url)
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


class GetWebhook(Request):
    """Get one webhook; its secret is not shown."""

    webhook_id: WebhookId


@operation(Scope.ADMIN)
async def get_webhook(ctx: RequestContext, request: GetWebhook) -> Webhook:
    found = await ctx.store.webhook(request.webhook_id, ctx.visible)
    return replace(found, stopped=(await stopped_webhooks(ctx, [found])).get(found.id))


class UpdateWebhook(Request):
    """Change the URL or the types of a webhook, or disable it; it misses what happens meanwhile."""

    constraints = (
        change_of(("url", "types", "enabled"), "give url, types or enabled: what to change"),
    )
    webhook_id: WebhookId
    url: Annotated[
        Annotated[str, Accepts({"pattern": WEBHOOK_URL})] | None,
        argument("The new URL.", "https://example.com/hook", min_length=8, max_length=2000),
    ] = None
    types: Annotated[
        list[EventName] | None,
        argument("Only these types; an empty list: all.", ["message.received"], max_length=20),
    ] = None
    enabled: Annotated[bool | None, argument("Whether it is told.", False)] = None


@operation(Scope.ADMIN)
async def update_webhook(ctx: RequestContext, request: UpdateWebhook) -> Webhook:
    if request.url is not None:
        ctx.poster.check(request.url)
    types = None if request.types is None else tuple(dict.fromkeys(request.types))
    change = WebhookChange(request.url, types, request.enabled)
    return await ctx.store.update_webhook(request.webhook_id, change, ctx.visible)


class PingWebhook(Request):
    """Send a signed request of the type webhook.ping to a webhook now, and return the response."""

    webhook_id: WebhookId


@operation(Scope.ADMIN, waits=True)
async def ping_webhook(ctx: RequestContext, request: PingWebhook) -> WebhookPing:
    url, secrets = await ctx.store.webhook_target(request.webhook_id, ctx.visible, ctx.clock())
    posted = await ping(ctx, request.webhook_id, url, secrets)
    await ctx.store.record_audit()
    status: Literal["delivered", "failed"] = "delivered" if posted.is_taken else "failed"
    return WebhookPing(request.webhook_id, status, posted.code, posted.detail)


class DeleteWebhook(Request):
    """Tell a webhook nothing more."""

    webhook_id: WebhookId


@operation(Scope.ADMIN, destroys=True)
async def delete_webhook(ctx: RequestContext, request: DeleteWebhook) -> None:
    await ctx.store.remove_webhook(request.webhook_id, ctx.visible)


class RenewWebhook(Request):
    """Give a webhook a new secret; for a day the old one signs as well.

    One that stopped because its key lost the right goes on with yours, with the new secret only.
    """

    webhook_id: WebhookId


@operation(Scope.ADMIN)
async def renew_webhook(ctx: RequestContext, request: RenewWebhook) -> Webhook:
    secret = new_webhook_secret()
    before = await ctx.store.webhook(request.webhook_id, ctx.visible)
    is_stopped = await webhook_refusal(ctx, before.made_by, before.inboxes)
    if is_stopped:
        needs_read(ctx, "a webhook is told what arrives")
    webhook = await ctx.store.renew_webhook(
        request.webhook_id,
        secret,
        ctx.visible,
        ctx.clock(),
        made_by=authority_of(ctx.caller) if is_stopped else None,
    )
    return replace(webhook, secret=secret)


class ListDeliveries(Paged):
    """List what a webhook was told and what it answered, newest first."""

    webhook_id: WebhookId


@operation(Scope.ADMIN)
async def list_deliveries(ctx: RequestContext, request: ListDeliveries) -> Page[WebhookDelivery]:
    found = await ctx.store.webhook_deliveries(
        request.webhook_id, ctx.visible, ctx.cursors.slice(request)
    )
    return ctx.cursors.page(request, found)


DeliveryId = Annotated[Id, argument("The delivery.", "dlv_9w3b7m")]


class GetDelivery(Request):
    """Get a delivery of a webhook with its body, as it would be sent now."""

    webhook_id: WebhookId
    delivery_id: DeliveryId


@operation(Scope.ADMIN)
async def get_delivery(ctx: RequestContext, request: GetDelivery) -> DeliveryBody:
    needs_read(ctx, "the body says what arrived")
    delivery, event = await ctx.store.webhook_delivery(
        request.webhook_id, request.delivery_id, ctx.visible
    )
    body = None if event is None else (await body_of(ctx, event)).decode()
    return DeliveryBody(delivery, body)


class Redeliver(Request):
    """Tell a webhook once more of something."""

    webhook_id: WebhookId
    delivery_id: DeliveryId


@operation(Scope.ADMIN)
async def redeliver(ctx: RequestContext, request: Redeliver) -> WebhookDelivery:
    return await ctx.store.redeliver(
        request.webhook_id, request.delivery_id, ctx.visible, ctx.clock()
    )
