"""Webhooks on the pages: secrets shown once, deliveries with their bodies, and isolation."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import httpx2
import pytest

from postroom.calls.operation import call
from postroom.model.event import Webhook
from postroom.operations.webhooks import create_webhook, list_webhooks
from tests.mails import deliver, mail, new_inbox
from tests.pipeline.conftest import receiver
from tests.pipeline.webhook_receiver import WebhookReceiver, until_deliveries_are, webhook_worker
from tests.surfaces.web.conftest import WebInstallation, WebUser, words

__all__ = ["receiver"]

_SECRET = re.compile(r"whsec_[\w+/=]{20,}")
_BODY = re.compile(r'<pre class="source" id="body">(.*?)</pre>', re.DOTALL)


@pytest.fixture
def settings() -> dict[str, str]:
    return {"POSTROOM_WEBHOOK_ALLOW": "127.0.0.0/8"}


async def make(person: WebUser, url: str, **form: Any) -> httpx2.Response:
    return await person.post("/webhooks/new", url=url, **form)


async def webhooks_of(installation: WebInstallation) -> list[Webhook]:
    return list((await call(installation.owner, list_webhooks, {})).results)


async def test_a_webhook_is_made_and_pinged_and_its_secret_shown_once(
    installation: WebInstallation, owner: WebUser, receiver: WebhookReceiver
) -> None:
    made = await make(owner, receiver.url, type=["message.received", "message.sent"])
    (webhook,) = await webhooks_of(installation)
    pinged = await owner.post(f"/webhooks/{webhook.id}/ping")
    listed = await owner.read("/webhooks")

    (secret,) = _SECRET.findall(unescape(made.text))
    assert "Ping succeeded: 204." in words(pinged.text)
    assert "webhook.ping" == json.loads(receiver.got[0][1])["type"]
    assert not _SECRET.search(unescape(pinged.text + listed))
    assert "message.received, message.sent of all inboxes" in words(listed)
    renewed = await owner.post(f"/webhooks/{webhook.id}/renew")
    assert secret not in unescape(renewed.text)
    assert _SECRET.search(unescape(renewed.text))


async def test_a_delivery_shows_its_body_and_is_made_again(
    installation: WebInstallation, owner: WebUser, receiver: WebhookReceiver
) -> None:
    await make(owner, receiver.url)
    (webhook,) = await webhooks_of(installation)
    inbox = await new_inbox(installation.app.services, "shop")
    async with webhook_worker(installation.owner):
        await deliver(installation.app.services, inbox, mail("Hello <script>alert(1)</script>"))
        await receiver.has(1)
        await until_deliveries_are(installation.owner, webhook, "delivered")
        page = await owner.read(f"/webhooks/{webhook.id}")
        path = re.findall(rf"/webhooks/{webhook.id}/deliveries/dlv_\w+", page)[0]
        shown = await owner.read(path)
        again = await owner.post(f"{path}/redeliver")
        await receiver.has(2)

    assert "message.received" in words(page)
    assert "<script>" not in shown
    assert json.loads(receiver.got[0][1]) == json.loads(unescape(_BODY.findall(shown)[0]))
    assert 303 == again.status_code
    assert receiver.got[0][1] == receiver.got[1][1]


async def test_a_webhook_that_fails_says_so(
    installation: WebInstallation, owner: WebUser, receiver: WebhookReceiver
) -> None:
    receiver.answer = lambda _: b"500 Internal Server Error"
    await make(owner, receiver.url)
    (webhook,) = await webhooks_of(installation)

    answer = words((await owner.post(f"/webhooks/{webhook.id}/ping")).text)

    assert "Ping failed: 500" in answer


async def test_a_webhook_is_changed_paused_and_removed(
    installation: WebInstallation, owner: WebUser, receiver: WebhookReceiver
) -> None:
    await make(owner, receiver.url)
    (webhook,) = await webhooks_of(installation)
    path = f"/webhooks/{webhook.id}"
    await owner.post(path, url=f"{receiver.url}&y=2", type="message.held")
    await owner.post(f"{path}/switch", enabled="false")
    (changed,) = await webhooks_of(installation)
    paused = words(await owner.read(path))
    await owner.post(f"{path}/switch", enabled="true")
    (resumed,) = await webhooks_of(installation)
    asked = words(await owner.read(f"{path}/remove"))
    await owner.post(f"{path}/remove")

    assert (("message.held",), False) == (changed.types, changed.enabled)
    assert "paused" in paused
    assert resumed.enabled
    assert "Delete this webhook?" in asked
    assert [] == await webhooks_of(installation)
    assert 404 == (await owner.get(path)).status_code
    assert 404 == (await owner.post(f"{path}/ping")).status_code


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"url": "http://10.0.0.1/"}, "not on the public Internet"),
        ({"url": "ftp://example.com/"}, "https://host/path"),
        ({"url": "https://example.com/", "type": "message.eaten"}, "there is no event"),
        ({"url": "https://example.com/", "limit_inboxes": "some"}, "select at least one inbox"),
        (
            {"url": "https://example.com/", "limit_inboxes": "some", "inbox": "inb_no"},
            "no inbox inb_no",
        ),
    ],
)
async def test_a_problem_with_a_webhook_is_explained(
    installation: WebInstallation, owner: WebUser, form: dict[str, str], reason: str
) -> None:
    answer = await owner.post("/webhooks/new", **form)

    assert answer.status_code in (404, 422)
    assert reason in words(answer.text)
    assert form["url"] in answer.text
    assert [] == await webhooks_of(installation)


async def test_a_session_sees_the_webhooks_and_bodies_of_its_inboxes_only(
    installation: WebInstallation, receiver: WebhookReceiver
) -> None:
    own, other = (
        await installation.new_inbox("own"),
        await new_inbox(installation.app.services, "other"),
    )
    hidden = await call(
        installation.owner, create_webhook, {"url": receiver.url, "inboxes": [other.id]}
    )
    seen = await call(installation.owner, create_webhook, {"url": receiver.url, "inboxes": [own]})
    async with webhook_worker(installation.owner):
        await deliver(installation.app.services, other, mail("Secret"))
        await receiver.has(1)
        await until_deliveries_are(installation.owner, hidden, "delivered")
    async with installation.new_user() as person:
        await person.sign_in(link=await installation.link())
        page = await person.read(f"/webhooks/{hidden.id}")
    delivery = re.findall(rf"/webhooks/{hidden.id}/deliveries/dlv_\w+", page)[0]

    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read", "admin", inboxes=[own]))
        listed = await person.read("/webhooks")
        answers = [
            await person.get(f"/webhooks/{hidden.id}"),
            await person.get(delivery),
            await person.get(delivery.replace(hidden.id, seen.id)),
            await person.post(f"{delivery}/redeliver"),
            await person.post(f"/webhooks/{hidden.id}/renew"),
            await person.post(f"/webhooks/{hidden.id}/remove"),
        ]
    async with installation.new_user() as reader:
        await reader.sign_in(key=await installation.key("read"))
        refused = await reader.get("/webhooks")

    assert (True, False) == (seen.id in listed, hidden.id in listed)
    assert {404} == {answer.status_code for answer in answers}
    assert 403 == refused.status_code
