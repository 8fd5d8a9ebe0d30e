"""Events and their live stream; webhooks: list, make, try and change them; their deliveries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from postroom.calls.authentication import session_end
from postroom.errors import Forbidden, InvalidInput, NotFound
from postroom.model.event import Event, Webhook
from postroom.model.key import Scope
from postroom.model.view import Everything
from postroom.operations.inboxes import list_inboxes
from postroom.operations.webhooks import (
    TYPES,
    create_webhook,
    delete_webhook,
    get_delivery,
    get_webhook,
    list_deliveries,
    list_events,
    list_webhooks,
    ping_webhook,
    redeliver,
    renew_webhook,
    stream_events,
    update_webhook,
)
from postroom.surfaces.http import event_lines, event_stream_response
from postroom.surfaces.web.page import (
    Form,
    FormResult,
    Link,
    Page,
    PageRequest,
    Redirect,
    Section,
    Values,
)

_EVENTS = 50
TONES = {
    "message.held": "held",
    "message.scheduled": "scheduled",
    "message.deferred": "held",
    "message.failed": "failed",
    "message.bounced": "failed",
    "message.rejected": "failed",
    "message.refused": "failed",
    "message.unknown": "failed",
    "rule.failed": "failed",
    "message.sent": "sent",
    "message.delivered": "sent",
    "message.approved": "sent",
}
"""The look of a type."""

_RECIPIENTS_SHOWN = 3


async def events(request: PageRequest) -> Values:
    """One page of events, by type and inbox."""
    asked = {name: request.query.get(name, "") for name in ("type", "inbox")}
    arguments: dict[str, Any] = {"sort": "newest", "limit": _EVENTS}
    arguments |= {"types": [asked["type"]]} if asked["type"] else {}
    arguments |= {"inbox_id": asked["inbox"]} if asked["inbox"] else {}
    inboxes = (await request.call(list_inboxes, limit=100)).results
    page = problem = None
    try:
        page = await request.call(list_events, **arguments, **request.cursor)
    except (InvalidInput, NotFound) as error:
        problem = str(error)
    kept = urlencode({name: value for name, value in asked.items() if value})
    return {
        "page": page,
        "problem": problem,
        "asked": asked,
        "kept": kept,
        "is_newest": not request.cursor,
        "types": TYPES,
        "tones": TONES,
        "addresses": {inbox.id: inbox.address for inbox in inboxes},
        "summaries": {event.id: event_summary(event) for event in page.results} if page else {},
    }


def event_summary(event: Event) -> str:
    """A summary of an event, in one line."""
    data = event.data
    if event.type == "message.received":
        sender, subject = data.get("from_address") or "(no sender)", data.get("subject")
        return f"{sender}: {subject or '(no subject)'}"
    if recipients := data.get("recipients"):
        named = ", ".join(one["address"] for one in recipients[:_RECIPIENTS_SHOWN])
        more = len(recipients) - _RECIPIENTS_SHOWN
        detail = next((one["detail"] for one in recipients if one.get("detail")), "")
        return f"{named}{f' and {more} more' if more > 0 else ''}{f': {detail}' if detail else ''}"
    words = [data.get(name) for name in ("rule", "by", "note", "detail", "reason")]
    return ": ".join(str(word) for word in words if word)


EVENTS_SECTION = Section(
    links=(Link("Events", "/events", menu=True),),
    pages=(Page("/events", "activity/events.html", events),),
)


PATH = "live"
_END = b"event: end\ndata: the session has ended\n\n"


async def live_response(request: Request, page_request: PageRequest) -> Response:
    """Events as they happen, until the session ends. Raises MailError.

    It waits most of the time, so it does not count against the concurrency limit. A browser that
    connects again says in Last-Event-ID what it saw last.
    """
    since = request.headers.get("last-event-id") or page_request.query.get("since")
    stream = await page_request.call(stream_events, **({"since": since} if since else {}))
    lines = _until_session_ends(page_request, event_lines(stream, named=False))
    return event_stream_response(lines, is_head=request.method == "HEAD")


async def _until_session_ends(
    request: PageRequest, lines: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    async with session_end(request.app.services, request.secret) as ended:
        while True:
            line = asyncio.ensure_future(anext(lines, None))
            try:
                await asyncio.wait([line, ended], return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    yield _END
                    return
                if (found := line.result()) is None:
                    return
                yield found
            finally:
                line.cancel()


_ROWS = 100
_DELIVERIES = 25


def state_of(webhook: Webhook) -> str:
    """Whether a webhook receives events."""
    if webhook.stopped:
        return "stopped"
    return "active" if webhook.enabled else "paused"


async def _addresses(request: PageRequest) -> dict[str, str]:
    """The inboxes that the person may see, by id."""
    if not request.may(Scope.READ):
        return {}
    found = await request.call(list_inboxes, limit=_ROWS)
    return {inbox.id: inbox.address for inbox in found.results}


async def webhooks(request: PageRequest) -> Values:
    """Every webhook that the person may see."""
    page = await request.call(list_webhooks, limit=_ROWS, **request.cursor)
    addresses = await _addresses(request)
    rows = [
        (webhook, state_of(webhook), _subscription_summary(webhook, addresses))
        for webhook in page.results
    ]
    return {"page": page, "rows": rows}


def _subscription_summary(webhook: Webhook, addresses: dict[str, str]) -> str:
    types = ", ".join(webhook.types) or "all events"
    if isinstance(webhook.inboxes, Everything):
        return f"{types} of all inboxes"
    return (
        f"{types} of {', '.join(addresses.get(i, i) for i in webhook.inboxes.named) or 'nothing'}"
    )


async def new_webhook(request: PageRequest) -> Values:
    """A form for a new webhook."""
    return {
        "types": TYPES,
        "addresses": await _addresses(request),
        "given": request.form,
        "chosen": {name: set(request.posted.all(name)) for name in ("type", "inbox")},
    }


async def make_webhook(request: PageRequest) -> FormResult:
    """Make a webhook and show its secret, once."""
    given = {"url": request.form.get("url", "").strip(), "types": request.posted.all("type")}
    if request.form.get("limit_inboxes") == "some":
        if not request.posted.all("inbox"):
            raise InvalidInput("select at least one inbox, or choose all inboxes")
        given["inboxes"] = request.posted.all("inbox")
    made = await request.call(create_webhook, **given)
    return FormResult("webhooks/secret.html", {"webhook": made, "is_new": True})


async def one_webhook(request: PageRequest) -> Values:
    """A webhook with its deliveries."""
    webhook = await request.call(get_webhook, webhook_id=request.path["webhook_id"])
    deliveries = await request.call(
        list_deliveries, webhook_id=webhook.id, limit=_DELIVERIES, **request.cursor
    )
    given = {"url": webhook.url, **request.form}
    chosen = set(request.posted.all("type")) if "url" in request.form else set(webhook.types)
    return {
        "webhook": webhook,
        "state": state_of(webhook),
        "subscription_summary": _subscription_summary(webhook, await _addresses(request)),
        "deliveries": deliveries,
        "types": TYPES,
        "given": given,
        "chosen": chosen,
        "ping": None,
        "is_waiting": any(one.status == "pending" for one in deliveries.results),
    }


async def change_webhook(request: PageRequest) -> Redirect:
    """Change the URL and the events of a webhook."""
    webhook_id = request.path["webhook_id"]
    url, types = request.form.get("url", "").strip(), request.posted.all("type")
    await request.call(update_webhook, webhook_id=webhook_id, url=url, types=types)
    return Redirect(f"/webhooks/{webhook_id}", "webhook changed")


async def switch(request: PageRequest) -> Redirect:
    """Pause a webhook, or resume it."""
    webhook_id, is_on = request.path["webhook_id"], request.form.get("enabled") == "true"
    await request.call(update_webhook, webhook_id=webhook_id, enabled=is_on)
    return Redirect(f"/webhooks/{webhook_id}", "webhook resumed" if is_on else "webhook paused")


async def ping(request: PageRequest) -> FormResult:
    """Send a request to try a webhook, and show the response."""
    answered = await request.call(ping_webhook, webhook_id=request.path["webhook_id"])
    return FormResult("webhooks/webhook.html", {**await one_webhook(request), "ping": answered})


async def renew(request: PageRequest) -> FormResult:
    """Renew the secret of a webhook and show it, once."""
    renewed = await request.call(renew_webhook, webhook_id=request.path["webhook_id"])
    return FormResult("webhooks/secret.html", {"webhook": renewed, "is_new": False})


async def delivery(request: PageRequest) -> Values:
    """A delivery, with the body that the receiver got or will get."""
    webhook_id, delivery_id = request.path["webhook_id"], request.path["delivery_id"]
    webhook = await request.call(get_webhook, webhook_id=webhook_id)
    if not request.may(Scope.READ):
        raise Forbidden(
            "the body of a delivery has data about incoming mail; your key needs the scope read"
        )
    found = await request.call(get_delivery, webhook_id=webhook_id, delivery_id=delivery_id)
    body = None if found.body is None else json.dumps(
        json.loads(found.body), ensure_ascii=False, indent=2
    )  # fmt: skip
    return {"webhook": webhook, "delivery": found.delivery, "body": body}


WEBHOOKS = Page("/webhooks", "webhooks/list.html", webhooks)
NEW = Page("/webhooks/new", "webhooks/new.html", new_webhook, scope=Scope.ADMIN)
WEBHOOK = Page("/webhooks/{webhook_id}", "webhooks/webhook.html", one_webhook)
REMOVE = Page("/webhooks/{webhook_id}/remove", "webhooks/remove.html", one_webhook)
_DELIVERY = "/webhooks/{webhook_id}/deliveries/{delivery_id}"
DELIVERY = Page(_DELIVERY, "webhooks/delivery.html", delivery)

SECTION = Section(
    links=(Link("Webhooks", "/webhooks", Scope.ADMIN, menu=True),),
    pages=(WEBHOOKS, NEW, WEBHOOK, REMOVE, DELIVERY),
    forms=(
        Form("/webhooks/new", make_webhook, NEW),
        Form("/webhooks/{webhook_id}", change_webhook, WEBHOOK),
        Form("/webhooks/{webhook_id}/switch", switch, WEBHOOK),
        Form("/webhooks/{webhook_id}/ping", ping, WEBHOOK),
        Form("/webhooks/{webhook_id}/renew", renew, WEBHOOK),
        Form(
            "/webhooks/{webhook_id}/remove",
            delete_webhook,
            REMOVE,
            redirect_to="/webhooks",
            notice="webhook removed",
        ),
        Form(f"{_DELIVERY}/redeliver", redeliver, DELIVERY, notice="delivered again"),
    ),
    notices={
        "webhook changed": "Saved.",
        "webhook paused": "Paused. Events that occur while it is paused are not delivered.",
        "webhook resumed": "Resumed. New events are delivered.",
        "webhook removed": "Webhook deleted.",
        "delivered again": "Delivery queued again.",
    },
)
