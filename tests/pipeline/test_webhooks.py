"""Webhooks are told what they asked for, signed, and seen by those who may."""

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
from postroom.errors import NotFound
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.view import EVERYTHING, only
from postroom.operations.webhooks import (
    create_webhook,
    delete_webhook,
    list_deliveries,
    list_webhooks,
    renew_webhook,
)
from postroom.pipeline.webhooks import payload
from postroom.surfaces.to_json import to_json
from tests.callers import a_caller
from tests.mails import deliver, mail, new_inbox
from tests.pipeline.receiver import Receiver, settled, telling


async def test_an_event_is_told_and_signed(
    open_ctx: RequestContext, inbox: Inbox, receiver: Receiver
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    async with telling(open_ctx):
        await deliver(open_ctx, inbox, mail("Told"))
        await receiver.has(1)
        await settled(open_ctx, webhook, "delivered")

    [event] = (await open_ctx.store.events(EventQuery(visible=EVERYTHING))).rows
    [(headers, body)] = receiver.got
    assert payload(event) == body
    assert {"untrusted": True, **to_json(event)} == json.loads(body)["data"]
    key = base64.b64decode((webhook.secret or "").removeprefix("whsec_"))
    signed = f"{event.id}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert (event.id, f"v1,{expected}") == (headers["webhook-id"], headers["webhook-signature"])


async def test_types_and_inboxes_choose_what_is_told(
    open_ctx: RequestContext, inbox: Inbox, receiver: Receiver
) -> None:
    other = await new_inbox(open_ctx, "other")
    await call(open_ctx, create_webhook, {"url": receiver.url, "types": ["message.failed"]})
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url, "inboxes": [inbox.id]})
    async with telling(open_ctx):
        await deliver(open_ctx, other, mail("Other"))
        await deliver(open_ctx, inbox, mail("Mine"))
        await settled(open_ctx, webhook, "delivered")

    assert ["Mine"] == receiver.subjects


async def test_both_secrets_sign_for_a_day(
    open_ctx: RequestContext, inbox: Inbox, receiver: Receiver
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    renewed = await call(open_ctx, renew_webhook, {"webhook_id": webhook.id})
    async with telling(open_ctx):
        await deliver(open_ctx, inbox, mail())
        await settled(open_ctx, webhook, "delivered")

    assert webhook.secret != renewed.secret
    assert 2 == len(receiver.got[0][0]["webhook-signature"].split())


async def test_an_import_tells_no_webhook(open_ctx: RequestContext, inbox: Inbox) -> None:
    from postroom.pipeline.ingest import Arrival, receive

    webhook = await call(open_ctx, create_webhook, {"url": "http://127.0.0.1:1/"})
    await receive(open_ctx, Arrival(mail(), inbox.id, is_imported=True))

    assert 0 == (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).total


async def test_a_webhook_is_seen_by_those_who_see_its_inboxes(
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
