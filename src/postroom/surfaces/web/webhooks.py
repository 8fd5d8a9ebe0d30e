"""Webhooks: list, make, try and change them; their deliveries. A new secret is shown once."""

from __future__ import annotations

import json

from postroom.errors import Forbidden, InvalidInput
from postroom.model.event import Webhook
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
    list_webhooks,
    ping_webhook,
    redeliver,
    renew_webhook,
    update_webhook,
)
from postroom.surfaces.web.page import Form, Link, Page, Redirect, Section, Shown, Values, Visit

_ROWS = 100
_DELIVERIES = 25


def state_of(webhook: Webhook) -> str:
    """Whether a webhook is told of events."""
    if webhook.stopped:
        return "stopped"
    return "active" if webhook.enabled else "paused"


async def _addresses(visit: Visit) -> dict[str, str]:
    """The inboxes that the person may see, by id."""
    if not visit.may(Scope.READ):
        return {}
    found = await visit.call(list_inboxes, limit=_ROWS)
    return {inbox.id: inbox.address for inbox in found.results}


async def webhooks(visit: Visit) -> Values:
    """Every webhook that the person may see."""
    place = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    page = await visit.call(list_webhooks, limit=_ROWS, **place)
    addresses = await _addresses(visit)
    rows = [(webhook, state_of(webhook), _told_of(webhook, addresses)) for webhook in page.results]
    return {"page": page, "rows": rows}


def _told_of(webhook: Webhook, addresses: dict[str, str]) -> str:
    types = ", ".join(webhook.types) or "all events"
    if isinstance(webhook.inboxes, Everything):
        return f"{types} of all inboxes"
    return (
        f"{types} of {', '.join(addresses.get(i, i) for i in webhook.inboxes.named) or 'nothing'}"
    )


async def new_webhook(visit: Visit) -> Values:
    """A form for a new webhook."""
    return {
        "types": TYPES,
        "addresses": await _addresses(visit),
        "given": visit.form,
        "chosen": {name: set(visit.posted.all(name)) for name in ("type", "inbox")},
    }


async def make_webhook(visit: Visit) -> Shown:
    """Make a webhook and show its secret, once."""
    given = {"url": visit.form.get("url", "").strip(), "types": visit.posted.all("type")}
    if visit.form.get("limit_inboxes") == "some":
        if not visit.posted.all("inbox"):
            raise InvalidInput("select at least one inbox, or choose all inboxes")
        given["inboxes"] = visit.posted.all("inbox")
    made = await visit.call(create_webhook, **given)
    return Shown("webhooks/secret.html", {"webhook": made, "is_new": True})


async def one_webhook(visit: Visit) -> Values:
    """A webhook with its deliveries."""
    webhook = await visit.call(get_webhook, webhook_id=visit.path["webhook_id"])
    place = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    deliveries = await visit.call(
        list_deliveries, webhook_id=webhook.id, limit=_DELIVERIES, **place
    )
    given = {"url": webhook.url, **visit.form}
    chosen = set(visit.posted.all("type")) if "url" in visit.form else set(webhook.types)
    return {
        "webhook": webhook,
        "state": state_of(webhook),
        "told_of": _told_of(webhook, await _addresses(visit)),
        "deliveries": deliveries,
        "types": TYPES,
        "given": given,
        "chosen": chosen,
        "ping": None,
        "is_waiting": any(one.status == "pending" for one in deliveries.results),
    }


async def change_webhook(visit: Visit) -> Redirect:
    """Change the URL and the events of a webhook."""
    webhook_id = visit.path["webhook_id"]
    url, types = visit.form.get("url", "").strip(), visit.posted.all("type")
    await visit.call(update_webhook, webhook_id=webhook_id, url=url, types=types)
    return Redirect(f"/webhooks/{webhook_id}", "webhook changed")


async def switch(visit: Visit) -> Redirect:
    """Pause a webhook, or resume it."""
    webhook_id, is_on = visit.path["webhook_id"], visit.form.get("enabled") == "true"
    await visit.call(update_webhook, webhook_id=webhook_id, enabled=is_on)
    return Redirect(f"/webhooks/{webhook_id}", "webhook resumed" if is_on else "webhook paused")


async def ping(visit: Visit) -> Shown:
    """Send a request to try a webhook, and show the response."""
    answered = await visit.call(ping_webhook, webhook_id=visit.path["webhook_id"])
    return Shown("webhooks/webhook.html", {**await one_webhook(visit), "ping": answered})


async def renew(visit: Visit) -> Shown:
    """Give a webhook a new secret and show it, once."""
    renewed = await visit.call(renew_webhook, webhook_id=visit.path["webhook_id"])
    return Shown("webhooks/secret.html", {"webhook": renewed, "is_new": False})


async def delivery(visit: Visit) -> Values:
    """A delivery, with the body that the receiver got or will get."""
    webhook_id, delivery_id = visit.path["webhook_id"], visit.path["delivery_id"]
    webhook = await visit.call(get_webhook, webhook_id=webhook_id)
    if not visit.may(Scope.READ):
        raise Forbidden("the body of a delivery says what arrived; your key needs the scope read")
    found = await visit.call(get_delivery, webhook_id=webhook_id, delivery_id=delivery_id)
    body = None if found.body is None else json.dumps(
        json.loads(found.body), ensure_ascii=False, indent=2
    )  # fmt: skip
    return {"webhook": webhook, "delivery": found.delivery, "body": body}


async def deliver_again(visit: Visit) -> Redirect:
    """Send an event to a webhook again."""
    webhook_id, delivery_id = visit.path["webhook_id"], visit.path["delivery_id"]
    await visit.call(redeliver, webhook_id=webhook_id, delivery_id=delivery_id)
    return Redirect(f"/webhooks/{webhook_id}/deliveries/{delivery_id}", "delivered again")


WEBHOOKS = Page("/webhooks", "webhooks/list.html", webhooks)
NEW = Page("/webhooks/new", "webhooks/new.html", new_webhook, scope=Scope.ADMIN)
WEBHOOK = Page("/webhooks/{webhook_id}", "webhooks/webhook.html", one_webhook)
REMOVE = Page("/webhooks/{webhook_id}/remove", "webhooks/remove.html", one_webhook)
DELIVERY = Page(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}", "webhooks/delivery.html", delivery
)

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
        Form("/webhooks/{webhook_id}/deliveries/{delivery_id}/redeliver", deliver_again, DELIVERY),
    ),
    notices={
        "webhook changed": "Saved.",
        "webhook paused": "Paused. Events that occur while it is paused are not delivered.",
        "webhook resumed": "Resumed. New events are delivered.",
        "webhook removed": "Webhook deleted.",
        "delivered again": "Delivery queued again.",
    },
)
