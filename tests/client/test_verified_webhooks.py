"""The helper accepts genuine webhook deliveries and nothing else."""

from __future__ import annotations

import threading
import time

import pytest
from anyio import to_thread

from postroom.client import verify_webhook
from postroom.errors import Forbidden, InvalidInput, Malformed
from postroom.pipeline.webhooks import signed_headers
from tests.mails import mail
from tests.servers.web import HttpRequest, HttpResponse, WebServer

SECRET, OTHER = "whsec_" + "c2VjcmV0" * 4, "whsec_" + "b3RoZXIh" * 4
BODY = b'{"type":"webhook.ping","timestamp":"2026-03-01T09:00:00Z","data":{"webhook_id":"whk_1"}}'


async def test_a_genuine_delivery_is_verified_and_parsed(postroom, inbox):
    told = threading.Event()

    def answer(request: HttpRequest) -> HttpResponse:
        if b"message.received" in request.body:
            told.set()
        return HttpResponse(204)

    with WebServer(answer) as hook:
        webhook = await postroom.create_webhook(hook.url, inboxes=[inbox.id])
        pinged = await postroom.ping_webhook(webhook.id)
        received = await postroom.receive_message(inbox.address, mail("Grüße", to=inbox.address))
        assert await to_thread.run_sync(told.wait, 30)
        await postroom.delete_webhook(webhook.id)

    ping, delivery = [verify_webhook(a.body, a.headers, webhook.secret) for a in hook.requests]
    assert ("delivered", None) == (pinged.status, ping.event)
    assert delivery.event is not None
    assert (received.message_id, delivery.id) == (delivery.event.message_id, delivery.event.id)
    assert delivery.event.message is not None
    assert "Grüße" == delivery.event.message.subject


def test_a_signature_by_one_of_several_secrets_is_enough():
    headers = signed_headers("evt_1", int(time.time()), BODY, [SECRET])

    assert "webhook.ping" == verify_webhook(BODY, headers, OTHER, SECRET).type


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,ü"},
        {"webhook-id": "evt_2"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "１２３"},
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": "4102444800"},  # the year 2100
    ],
    ids=str,
)
def test_a_request_that_was_changed_is_refused(change):
    headers = signed_headers("evt_1", int(time.time()), BODY, [SECRET])

    with pytest.raises(Forbidden, match="webhook:"):
        verify_webhook(BODY, {**headers, **change}, SECRET)


def test_a_signature_of_another_time_body_or_secret_is_refused():
    old = signed_headers("evt_1", int(time.time()) - 301, BODY, [SECRET])
    good = signed_headers("evt_1", int(time.time()), BODY, [SECRET])

    wrong = ((old, BODY, SECRET), (good, BODY + b" ", SECRET), (good, BODY, OTHER))
    for headers, body, secret in wrong:
        with pytest.raises(Forbidden):
            verify_webhook(body, headers, secret)
    with pytest.raises(Forbidden):
        verify_webhook(BODY, good)


@pytest.mark.parametrize("secret", ["", "whsec_", "c2VjcmV0", "whsec_***"])
def test_an_invalid_secret_is_refused(secret):
    headers = signed_headers("evt_1", int(time.time()), BODY, [SECRET])

    with pytest.raises(InvalidInput, match="whsec_"):
        verify_webhook(BODY, headers, secret)


def test_a_signed_body_that_is_no_event_is_malformed():
    for body in (b"", b"[]", b"\xff", b'{"type": 7}'):
        headers = signed_headers("evt_1", int(time.time()), body, [SECRET])
        with pytest.raises(Malformed):
            verify_webhook(body, headers, SECRET)
