"""What a provider may have done is not asked of it again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postroom.model.sending import OutboxEntry, Sent
from postroom.model.view import EVERYTHING
from postroom.operations.outgoing import outbox
from tests.providers.accounts.conftest import Desk
from tests.providers.accounts.test_every_provider import ask
from tests.providers.accounts.test_sent_copies import OUTSIDE, later, local, send, working
from tests.providers.accounts.worlds import GmailWorld, GraphWorld, World
from tests.servers.web import HttpRequest, HttpResponse, WebServer

WEB = ["gmail", "outlook"]
BUSY = HttpResponse(503, {"error": {"code": 503, "status": "UNAVAILABLE"}}, {"Retry-After": "1"})
SENDING = ("/messages/send", "/sendMail", "/send")


def web_of(world: World) -> WebServer:
    assert isinstance(world, GmailWorld | GraphWorld)
    return world.gmail.web if isinstance(world, GmailWorld) else world.graph.web


def busy_after(web: WebServer, *, endings: tuple[str, ...], times: int) -> list[HttpRequest]:
    """Let a server do what it is asked to, and say that it has no time; what it said so of."""
    real, told = web.answer, list[HttpRequest]()

    def answer(request: HttpRequest) -> HttpResponse:
        done = real(request)
        if request.method == "POST" and request.path.endswith(endings) and len(told) < times:
            told.append(request)
            return BUSY
        return done

    web.answer = answer
    return told


async def sent_by(desk: Desk, **more: Any) -> Sent:
    async with working(desk):
        return await send(desk, OUTSIDE, wait_s=20, **more)


@pytest.mark.parametrize("world", WEB, indirect=True)
async def test_mail_that_a_busy_provider_may_have_sent_is_unknown_and_sent_once(
    desk: Desk, world: World
) -> None:
    await desk.sync()
    told = busy_after(web_of(world), endings=SENDING, times=2)
    sent = await sent_by(desk)

    assert ("unknown", 1, 1) == (sent.status, len(told), len(world.sent()))


@pytest.mark.parametrize("world", WEB, indirect=True)
async def test_mail_that_came_too_fast_is_sent_once_there_is_time(desk: Desk, world: World) -> None:
    """A provider that counts requests has not looked at what it refuses for that."""
    await desk.sync()
    web = web_of(world)
    real, refused = web.answer, list[HttpRequest]()

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path.endswith(SENDING) and not refused:
            refused.append(request)
            return HttpResponse(429, {"error": {"code": 429}}, {"Retry-After": "1"})
        return real(request)

    web.answer = answer
    sent = await sent_by(desk)

    assert ("sent", 1, 1) == (sent.status, len(refused), len(world.sent()))


@pytest.mark.parametrize("world", WEB, indirect=True)
async def test_a_copy_that_a_busy_provider_has_made_is_not_made_again(
    desk: Desk, world: World
) -> None:
    await desk.sync()
    told = busy_after(web_of(world), endings=("/messages",), times=1)
    await send(desk, await local(desk))
    await desk.sync()

    assert (1, ["Sent"]) == (len(told), world.copies("Hello"))


@pytest.mark.parametrize("world", WEB, indirect=True)
async def test_mail_waits_as_long_as_its_provider_wants_whoever_sends_it(
    desk: Desk, world: World
) -> None:
    await desk.sync()
    web = web_of(world)
    wait = HttpResponse(429, {"error": {"code": 429}}, {"Retry-After": "86400"})
    web.answer = lambda _: wait
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=3)
    (entry,) = (await ask(desk, outbox.list_outbox)).results
    request = len(web.requests)
    async with working(later(desk, timedelta(hours=23))) as worker:
        await worker.finish(2)

    assert ("queued", 86_400) == (sent.status, round(waits_s(entry), -2))
    assert request == len(web.requests)


def waits_s(entry: OutboxEntry) -> float:
    assert entry.next_attempt_at is not None
    return (entry.next_attempt_at - entry.queued_at).total_seconds()


@pytest.mark.parametrize("world", ["imap"], indirect=True)
async def test_mail_whose_login_nobody_has_bounces_after_two_days_and_says_so(desk: Desk) -> None:
    await desk.sync()
    desk.app.services.providers.remove_secret("work")
    sent = await send(desk, OUTSIDE)
    details = []
    for hours in (0, 1, 48):
        async with working(later(desk, timedelta(hours=hours))) as worker:
            await worker.finish(5)
        message = await desk.app.services.store.message(sent.message_id, EVERYTHING)
        assert message is not None
        details += [(r.status, r.detail) for r in message.recipients or ()]

    assert [("queued", None), "queued", "bounced"] == [details[0], details[1][0], details[2][0]]
    assert "run: postroom account login work" in str(details[1][1])
    assert "run: postroom account login work" in str(details[2][1])
