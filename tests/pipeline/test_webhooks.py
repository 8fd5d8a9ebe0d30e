"""Webhooks get the events they subscribe to, signed, and are visible to their owners."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.model.event import EventQuery, WebhookPing
from postroom.model.inbox import Inbox
from postroom.model.view import EVERYTHING, only
from postroom.operations.mail.messages import list_messages
from postroom.operations.webhooks import (
    create_webhook,
    delete_webhook,
    list_deliveries,
    list_webhooks,
    ping_webhook,
    redeliver,
    renew_webhook,
    update_webhook,
)
from postroom.pipeline.webhooks import payload, sign
from postroom.surfaces.to_json import to_json
from tests.callers import a_caller
from tests.mails import deliver, mail, new_inbox
from tests.pipeline.webhook_receiver import WebhookReceiver, until_deliveries_are, webhook_worker


async def test_an_event_is_delivered_and_signed(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    async with webhook_worker(open_ctx):
        await deliver(open_ctx, inbox, mail("Told"))
        await receiver.has(1)
        await until_deliveries_are(open_ctx, webhook, "delivered")

    [event] = (await open_ctx.store.events(EventQuery(visible=EVERYTHING))).rows
    [(headers, body)] = receiver.got
    rows = await call(open_ctx, list_messages, {"inbox_id": inbox.id})
    assert payload(event, rows.results[0]) == body
    assert {
        "untrusted": True,
        **to_json(event),
        "message": to_json(rows.results[0]),
    } == json.loads(body)["data"]
    key = base64.b64decode((webhook.secret or "").removeprefix("whsec_"))
    signed = f"{event.id}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert (event.id, f"v1,{expected}") == (headers["webhook-id"], headers["webhook-signature"])


async def test_types_and_inboxes_select_events(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    other = await new_inbox(open_ctx, "other")
    await call(open_ctx, create_webhook, {"url": receiver.url, "types": ["message.failed"]})
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url, "inboxes": [inbox.id]})
    async with webhook_worker(open_ctx):
        await deliver(open_ctx, other, mail("Other"))
        await deliver(open_ctx, inbox, mail("Mine"))
        await until_deliveries_are(open_ctx, webhook, "delivered")

    assert ["Mine"] == receiver.subjects


async def test_after_a_renewal_both_secrets_sign_for_a_day(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    renewed = await call(open_ctx, renew_webhook, {"webhook_id": webhook.id})
    async with webhook_worker(open_ctx):
        await deliver(open_ctx, inbox, mail())
        await until_deliveries_are(open_ctx, webhook, "delivered")

    assert webhook.secret != renewed.secret
    assert 2 == len(receiver.got[0][0]["webhook-signature"].split())


async def test_an_import_calls_no_webhook(open_ctx: RequestContext, inbox: Inbox) -> None:
    from postroom.pipeline.ingest import Arrival, receive

    webhook = await call(open_ctx, create_webhook, {"url": "http://127.0.0.1:1/"})
    await receive(open_ctx, Arrival(mail(), inbox.id, is_imported=True))

    assert 0 == (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).total


async def test_a_webhook_is_visible_to_callers_who_see_its_inboxes(
    app: App, open_ctx: RequestContext, inbox: Inbox
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": "http://127.0.0.1:1/"})
    limited = replace(open_ctx, caller=a_caller("key_1", inboxes=only(inbox.id)))
    own = await call(limited, create_webhook, {"url": "http://127.0.0.1:1/"})

    assert only(inbox.id) == own.inboxes
    assert [own.id] == [w.id for w in (await call(limited, list_webhooks, {})).results]
    with pytest.raises(NotFound):
        await call(limited, delete_webhook, {"webhook_id": webhook.id})
    assert all(w.secret is None for w in (await call(open_ctx, list_webhooks, {})).results)


async def test_a_ping_is_signed_and_its_response_is_returned(
    open_ctx: RequestContext, receiver: WebhookReceiver
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})

    pinged = await call(open_ctx, ping_webhook, {"webhook_id": webhook.id})

    [(headers, body)] = receiver.got
    told = json.loads(body)
    assert ("webhook.ping", {"webhook_id": webhook.id}) == (told["type"], told["data"])
    stamp = int(headers["webhook-timestamp"])
    expected = sign(webhook.secret or "", headers["webhook-id"], stamp, body)
    assert expected == headers["webhook-signature"]
    assert WebhookPing(webhook.id, "delivered", 204, "No Content") == pinged
    assert 0 == (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).total


async def test_a_ping_without_a_receiver_reports_the_error(open_ctx: RequestContext) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": "http://127.0.0.1:1/"})

    pinged = await call(open_ctx, ping_webhook, {"webhook_id": webhook.id})

    assert ("failed", None) == (pinged.status, pinged.code)
    assert "connection refused" in pinged.detail


async def test_a_webhook_is_changed(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    webhook = await call(
        open_ctx, create_webhook, {"url": "http://127.0.0.1:1/", "types": ["message.failed"]}
    )

    moved = await call(open_ctx, update_webhook, {"webhook_id": webhook.id, "url": receiver.url})
    changed = await call(open_ctx, update_webhook, {"webhook_id": webhook.id, "types": []})
    async with webhook_worker(open_ctx):
        await deliver(open_ctx, inbox, mail("Told"))
        await until_deliveries_are(open_ctx, webhook, "delivered")

    assert (receiver.url, ("message.failed",)) == (moved.url, moved.types)
    assert (receiver.url, (), True, None) == (
        changed.url,
        changed.types,
        changed.enabled,
        changed.secret,
    )
    assert ["Told"] == receiver.subjects


async def test_a_disabled_webhook_gets_no_events(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail("Before"))
    await call(open_ctx, update_webhook, {"webhook_id": webhook.id, "enabled": False})
    await deliver(open_ctx, inbox, mail("Meanwhile"))

    assert await open_ctx.store.next_webhook_at() is None
    now = open_ctx.clock()
    assert [] == await open_ctx.store.claim_webhooks("me", now=now, until=now, limit=9)
    async with webhook_worker(open_ctx):
        await call(open_ctx, update_webhook, {"webhook_id": webhook.id, "enabled": True})
        await until_deliveries_are(open_ctx, webhook, "delivered")
        await deliver(open_ctx, inbox, mail("After"))
        await receiver.has(2)

    assert ["Before", "After"] == receiver.subjects


async def test_a_disabled_webhook_gets_no_retries(
    open_ctx: RequestContext, inbox: Inbox, receiver: WebhookReceiver
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    async with webhook_worker(open_ctx):
        await deliver(open_ctx, inbox, mail("Told"))
        await until_deliveries_are(open_ctx, webhook, "delivered")
    await call(open_ctx, update_webhook, {"webhook_id": webhook.id, "enabled": False})
    page = await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})

    given = {"webhook_id": webhook.id, "delivery_id": page.results[0].id}
    with pytest.raises(Conflict, match="is disabled; enable it with update_webhook first"):
        await call(open_ctx, redeliver, given)


async def test_a_change_of_a_webhook_is_validated(open_ctx: RequestContext, inbox: Inbox) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": "http://127.0.0.1:1/"})
    limited = replace(open_ctx, caller=a_caller("key_1", inboxes=only(inbox.id)))

    for change, said in (
        ({}, "give url, types or enabled"),
        ({"url": "ftp://example.com/"}, "url: "),
        ({"url": "http://10.0.0.1/"}, "POSTROOM_WEBHOOK_ALLOW"),
        ({"types": ["message.eaten"]}, "there is no event type message.eaten"),
        ({"types": ["message.recieved"]}, "did you mean message.received?"),
    ):
        with pytest.raises(InvalidInput, match=said):
            await call(open_ctx, update_webhook, {"webhook_id": webhook.id, **change})
    for operation, more in ((update_webhook, {"enabled": False}), (ping_webhook, {})):
        with pytest.raises(NotFound):
            await call(limited, operation, {"webhook_id": webhook.id, **more})
