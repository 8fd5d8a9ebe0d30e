"""Webhooks are told at least once, in order, signed, and never lead us into the house."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network

import pytest

from postroom.app import App
from postroom.errors import InvalidInput, NotFound
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER, Caller
from postroom.model.webhook import Posted, Webhook
from postroom.operations.context import Context
from postroom.operations.operation import call
from postroom.operations.webhooks import (
    create_webhook,
    delete_webhook,
    list_deliveries,
    list_webhooks,
    redeliver,
    renew_webhook,
)
from postroom.pipeline.webhooks import Webhooks, payload, wait_after
from postroom.providers.webhooks.guard import Guard, parse_target
from postroom.providers.webhooks.poster import HttpPoster
from postroom.surfaces.shapes import to_json
from tests.mails import deliver, mail, new_inbox

LOOPBACK = (ip_network("127.0.0.0/8"),)


@dataclass
class Receiver:
    """A server that answers as told and keeps what it got."""

    answer: Callable[[int], bytes] = lambda _: b"204 No Content"
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    port: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?x=1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            pairs = (line.split(": ", 1) for line in head.splitlines()[1:] if line)
            headers = {name.lower(): value for name, value in pairs}
            body = await reader.readexactly(int(headers["content-length"]))
            self.got.append((headers, body))
            writer.write(b"HTTP/1.1 " + self.answer(len(self.got)) + b"\r\n\r\n")
            await writer.drain()
            self.news.set()
        writer.close()

    async def has(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.got) < count:
                self.news.clear()
                await self.news.wait()

    @property
    def subjects(self) -> list[str]:
        return [json.loads(body)["data"]["data"]["subject"] for _, body in self.got]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    yield receiver
    server.close()


class Clock:
    """A time that tests move."""

    now = datetime(2026, 6, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_ctx(app: App, clock: Clock) -> Context:
    """The house, which may speak to this machine."""
    house = replace(app.house, poster=HttpPoster(Guard(LOOPBACK), patience_s=2), clock=clock)
    return replace(app, house=house).context(OWNER)


@pytest.fixture
async def inbox(open_ctx: Context) -> Inbox:
    return await new_inbox(open_ctx)


@asynccontextmanager
async def telling(ctx: Context) -> AsyncIterator[None]:
    task = asyncio.create_task(Webhooks(ctx).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def settled(ctx: Context, webhook: Webhook, status: str) -> None:
    """Wait until every delivery has this status."""
    bell = ctx.store.bell
    async with asyncio.timeout(10):
        rung = bell.rung("webhooks")
        while True:
            page = await call(ctx, list_deliveries, {"webhook_id": webhook.id})
            if {delivery.status for delivery in page.results} == {status}:
                return
            rung = await bell.wait("webhooks", rung)


async def tried(ctx: Context, webhook: Webhook, attempts: int) -> None:
    """Wait until the oldest delivery was attempted so often."""
    bell = ctx.store.bell
    async with asyncio.timeout(10):
        rung = bell.rung("webhooks")
        while True:
            page = await call(ctx, list_deliveries, {"webhook_id": webhook.id})
            if page.results[-1].attempts == attempts:
                return
            rung = await bell.wait("webhooks", rung)


async def test_an_event_is_told_and_signed(
    open_ctx: Context, inbox: Inbox, receiver: Receiver
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    async with telling(open_ctx):
        await deliver(open_ctx, inbox, mail("Told"))
        await receiver.has(1)
        await settled(open_ctx, webhook, "delivered")

    [event] = (await open_ctx.store.events(EventQuery())).rows
    [(headers, body)] = receiver.got
    assert payload(event) == body
    assert {"untrusted": True, **to_json(event)} == json.loads(body)["data"]
    key = base64.b64decode((webhook.secret or "").removeprefix("whsec_"))
    signed = f"{event.id}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    assert (event.id, f"v1,{expected}") == (headers["webhook-id"], headers["webhook-signature"])


async def test_types_and_inboxes_choose_what_is_told(
    open_ctx: Context, inbox: Inbox, receiver: Receiver
) -> None:
    other = await new_inbox(open_ctx, "other")
    await call(open_ctx, create_webhook, {"url": receiver.url, "types": ["message.failed"]})
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url, "inboxes": [inbox.id]})
    async with telling(open_ctx):
        await deliver(open_ctx, other, mail("Other"))
        await deliver(open_ctx, inbox, mail("Mine"))
        await settled(open_ctx, webhook, "delivered")

    assert ["Mine"] == receiver.subjects


async def test_what_fails_is_told_again_and_the_rest_waits_its_turn(
    open_ctx: Context, inbox: Inbox, receiver: Receiver, clock: Clock
) -> None:
    receiver.answer = lambda count: b"500 Oops" if count <= 2 else b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    for subject in ("one", "two", "three"):
        await deliver(open_ctx, inbox, mail(subject))
    async with telling(open_ctx):
        for count in (1, 2):
            await tried(open_ctx, webhook, count)
            clock.now += timedelta(minutes=5)
            await deliver(open_ctx, inbox, mail("late", message_id=f"<late{count}@x.org>"))
        await settled(open_ctx, webhook, "delivered")

    assert ["one", "one", "one", "two", "three", "late", "late"] == receiver.subjects


@pytest.mark.parametrize(
    "answer",
    [b"302 Found\r\nLocation: http://127.0.0.1:1/", b"404 No", b"x", b"200 " + b"O" * 20_000],
    ids=["redirect", "missing", "not HTTP", "endless line"],
)
async def test_other_answers_are_failures_and_redirects_are_not_followed(
    open_ctx: Context, inbox: Inbox, receiver: Receiver, answer: bytes
) -> None:
    receiver.answer = lambda _: answer
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    async with telling(open_ctx):
        await receiver.has(1)
        rung = open_ctx.store.bell.rung("webhooks")
        await asyncio.wait(
            [asyncio.create_task(open_ctx.store.bell.wait("webhooks", rung))], timeout=1
        )

    [delivery] = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
    assert ("pending", 1) == (delivery.status, delivery.attempts)
    assert 1 == len(receiver.got)


async def test_an_answer_that_is_still_to_come_is_waited_for(
    open_ctx: Context, inbox: Inbox, receiver: Receiver
) -> None:
    early = b"103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\nHTTP/1.1 "
    receiver.answer = lambda _: b"100 Continue\r\n\r\nHTTP/1.1 " + early + b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    async with telling(open_ctx):
        await settled(open_ctx, webhook, "delivered")

    assert 1 == len(receiver.got)


async def test_whatever_goes_wrong_is_a_failed_attempt(
    open_ctx: Context, inbox: Inbox, receiver: Receiver
) -> None:
    @dataclass(frozen=True)
    class Broken(HttpPoster):
        async def post(self, url: str, headers: object, body: bytes) -> Posted:
            raise RuntimeError

    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    async with telling(replace(open_ctx, poster=Broken())):
        await tried(open_ctx, webhook, 1)

    [delivery] = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
    assert ("pending", True) == (delivery.status, "log" in delivery.detail)


async def test_a_receiver_that_never_answers_holds_up_itself_alone(
    open_ctx: Context, inbox: Inbox, receiver: Receiver
) -> None:
    patient = replace(open_ctx, poster=HttpPoster(Guard(LOOPBACK), patience_s=60))
    others = [await new_inbox(open_ctx, f"other{number}") for number in range(70)]
    async with silent() as (url, held):
        await call(open_ctx, create_webhook, {"url": url})
        await call(open_ctx, create_webhook, {"url": receiver.url, "inboxes": [inbox.id]})
        for other in others:
            await deliver(open_ctx, other, mail())
        await deliver(open_ctx, inbox, mail("urgent"))
        async with telling(patient):
            await receiver.has(1)

    assert ["urgent"] == receiver.subjects
    assert len(held) <= Webhooks(patient).at_once_each


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[str, list[asyncio.StreamWriter]]]:
    """A server that takes connections and says nothing."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", held
    finally:
        server.close()
        for writer in held:
            writer.close()


async def test_after_a_day_it_is_given_up_and_can_be_told_by_hand(
    open_ctx: Context, inbox: Inbox, receiver: Receiver, clock: Clock
) -> None:
    receiver.answer = lambda count: b"500 Oops" if count == 1 else b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    clock.now += timedelta(hours=24)
    async with telling(open_ctx):
        await settled(open_ctx, webhook, "dead")
        [dead] = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
        await call(open_ctx, redeliver, {"webhook_id": webhook.id, "delivery_id": dead.id})
        await settled(open_ctx, webhook, "delivered")

    assert (500, 2) == (dead.code, len(receiver.got))


async def test_what_is_told_again_by_hand_begins_anew_and_holds_nothing_up(
    open_ctx: Context, inbox: Inbox, receiver: Receiver
) -> None:
    receiver.answer = lambda count: b"500 Oops" if count == 2 else b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail("old"))
    async with telling(open_ctx):
        await settled(open_ctx, webhook, "delivered")
        [old] = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
        again = {"webhook_id": webhook.id, "delivery_id": old.id}
        await call(open_ctx, redeliver, again)
        await receiver.has(2)
        await deliver(open_ctx, inbox, mail("new"))
        await receiver.has(3)
        await tried(open_ctx, webhook, 1)

    _, old = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results
    assert ["old", "old", "new"] == receiver.subjects
    assert ("pending", 1) == (old.status, old.attempts)


async def test_what_is_retried_by_hand_keeps_its_turn(
    open_ctx: Context, inbox: Inbox, receiver: Receiver
) -> None:
    receiver.answer = lambda count: b"500 Oops" if count == 1 else b"200 OK"
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail("first"))
    await deliver(open_ctx, inbox, mail("second"))
    async with telling(open_ctx):
        await tried(open_ctx, webhook, 1)
        first = (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).results[-1]
        again = {"webhook_id": webhook.id, "delivery_id": first.id}
        told = await call(open_ctx, redeliver, again)
        await settled(open_ctx, webhook, "delivered")

    assert ("pending", 0) == (told.status, told.attempts)
    assert ["first", "first", "second"] == receiver.subjects


async def test_a_delivery_whose_worker_died_is_made_by_another(
    open_ctx: Context, inbox: Inbox, receiver: Receiver, clock: Clock
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    await deliver(open_ctx, inbox, mail())
    await open_ctx.store.claim_webhooks(
        "dead", now=clock(), until=clock() + timedelta(seconds=60), limit=9
    )
    clock.now += timedelta(seconds=61)
    async with telling(open_ctx):
        await settled(open_ctx, webhook, "delivered")

    assert 1 == len(receiver.got)


async def test_both_secrets_sign_for_a_day(
    open_ctx: Context, inbox: Inbox, receiver: Receiver
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": receiver.url})
    renewed = await call(open_ctx, renew_webhook, {"webhook_id": webhook.id})
    async with telling(open_ctx):
        await deliver(open_ctx, inbox, mail())
        await settled(open_ctx, webhook, "delivered")

    assert webhook.secret != renewed.secret
    assert 2 == len(receiver.got[0][0]["webhook-signature"].split())


async def test_an_import_tells_no_webhook(open_ctx: Context, inbox: Inbox) -> None:
    from postroom.pipeline.receive import Arrival, receive

    webhook = await call(open_ctx, create_webhook, {"url": "http://127.0.0.1:1/"})
    await receive(open_ctx, Arrival(mail(), inbox.id, is_imported=True))

    assert 0 == (await call(open_ctx, list_deliveries, {"webhook_id": webhook.id})).total


async def test_a_webhook_is_seen_by_those_who_see_its_inboxes(
    app: App, open_ctx: Context, inbox: Inbox
) -> None:
    webhook = await call(open_ctx, create_webhook, {"url": "http://127.0.0.1:1/"})
    limited = replace(open_ctx, caller=Caller("key_1", inboxes=frozenset({inbox.id})))
    own = await call(limited, create_webhook, {"url": "http://127.0.0.1:1/"})

    assert (inbox.id,) == own.inboxes
    assert [own.id] == [w.id for w in (await call(limited, list_webhooks, {})).results]
    with pytest.raises(NotFound):
        await call(limited, delete_webhook, {"webhook_id": webhook.id})
    assert all(w.secret is None for w in (await call(open_ctx, list_webhooks, {})).results)


def test_the_waits_grow_to_hours() -> None:
    waits = [wait_after(attempts) for attempts in range(30)]

    assert (timedelta(seconds=5), timedelta(seconds=20)) == (waits[0], waits[1])
    assert timedelta(hours=4) == max(waits)


PRIVATE = [
    "127.0.0.1", "127.1", "127.0.0.2", "0.0.0.0", "0", "10.0.0.1", "10.255.255.255", "172.16.0.1",
    "172.31.255.255", "192.168.0.1", "192.168.255.255", "169.254.169.254", "169.254.0.1",
    "100.64.0.1", "100.127.255.255", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "192.88.99.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
    "0x7f.1", "3232235521", "0xc0a80001", "0300.0250.0.1", "2852039166", "0xa9fea9fe",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[::ffff:169.254.169.254]",
    "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::10.0.0.1]",
    "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2002:a00:1::]",
    "[2002:c0a8:1::]", "[2002:a9fe:a9fe::]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]",
    "[fd00::1]", "[fd12:3456:789a::1]", "[fec0::1]", "[ff02::1]", "[ff00::]", "[2001:db8::1]",
    "[100::1]", "[2001::1]", "[2001:0:7f00:1::]", "192.0.0.8", "[::ffff:0:127.0.0.1]",
    "[::ffff:0:a9fe:a9fe]", "[64:ff9b:1:7f00:0:100:808:808]", "[64:ff9b:1::808:808]",
]  # fmt: skip
FORMS = ["http://{}/", "https://{}/x", "http://{}:8080/"]


@pytest.mark.parametrize("host", PRIVATE)
def test_no_spelling_of_a_private_address_is_taken(host: str) -> None:
    for form in FORMS:
        with pytest.raises(InvalidInput):
            Guard().check(form.format(host))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "//example.com/",
        "http://user:pw@example.com/", "http://user@example.com/", "http://", "http:///x",
        "http://exa mple.com/", "http://example.com/a b", "http://example.com/\r\nX: y",
        "http://example.com\\@127.0.0.1/", "http://example.com:99999/", "http://ex\u00e4mple.com/",
        "javascript:alert(1)", "http://[::1", "",
    ],
)  # fmt: skip
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        Guard().check(url)


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111"])
def test_the_world_is_open(address: str) -> None:
    assert Guard().is_open(ip_address(address))


async def test_nobody_at_the_url_is_said_in_plain_words() -> None:
    posted = await HttpPoster(Guard((ip_network("127.0.0.0/8"),))).post(
        "http://127.0.0.1:1/", {}, b""
    )

    assert Posted(None, "no answer: connection refused") == posted


async def test_a_name_that_leads_into_the_house_is_refused_when_it_is_called() -> None:
    posted = await HttpPoster().post("http://localhost:1/", {}, b"")

    assert (None, True) == (posted.code, posted.detail.startswith("refused"))


def test_the_name_stays_in_the_request_while_the_address_is_pinned() -> None:
    assert "example.com:8080" == parse_target("http://example.com:8080/x").authority
    assert "[2606:4700::1]" == parse_target("https://[2606:4700::1]/x").authority
