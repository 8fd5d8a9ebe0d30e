"""A request that the provider may have executed is not repeated."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postroom.model.mail.sending import OutboxEntry, Sent
from postroom.model.view import EVERYTHING
from postroom.operations.outgoing import outbox
from tests.providers.accounts.conftest import SyncedAccount
from tests.providers.accounts.remote_mailboxes import GmailRemote, GraphRemote, RemoteMailbox
from tests.providers.accounts.test_every_provider import ask
from tests.providers.accounts.test_sent_copies import OUTSIDE, later, local, outbox_worker, send
from tests.servers.web import HttpRequest, HttpResponse, WebServer

WEB = ["gmail", "outlook"]
BUSY = HttpResponse(503, {"error": {"code": 503, "status": "UNAVAILABLE"}}, {"Retry-After": "1"})
SENDING = ("/messages/send", "/sendMail", "/send")


def web_of(remote: RemoteMailbox) -> WebServer:
    assert isinstance(remote, GmailRemote | GraphRemote)
    return remote.gmail.web if isinstance(remote, GmailRemote) else remote.graph.web


def busy_after(web: WebServer, *, endings: tuple[str, ...], times: int) -> list[HttpRequest]:
    """Make a server execute requests and then report that it is busy; returns those requests."""
    real, told = web.answer, list[HttpRequest]()

    def answer(request: HttpRequest) -> HttpResponse:
        done = real(request)
        if request.method == "POST" and request.path.endswith(endings) and len(told) < times:
            told.append(request)
            return BUSY
        return done

    web.answer = answer
    return told


async def sent_by(synced: SyncedAccount, **more: Any) -> Sent:
    async with outbox_worker(synced):
        return await send(synced, OUTSIDE, wait_s=20, **more)


@pytest.mark.parametrize("remote", WEB, indirect=True)
async def test_mail_that_a_busy_provider_may_have_sent_is_unknown(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    told = busy_after(web_of(remote), endings=SENDING, times=2)
    sent = await sent_by(synced)

    assert ("unknown", 1, 1) == (sent.status, len(told), len(remote.sent()))


@pytest.mark.parametrize("remote", WEB, indirect=True)
async def test_rate_limited_mail_is_sent_later(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    """A provider that refuses a request because of its rate limit has not executed it."""
    await synced.sync()
    web = web_of(remote)
    real, refused = web.answer, list[HttpRequest]()

    def answer(request: HttpRequest) -> HttpResponse:
        if request.path.endswith(SENDING) and not refused:
            refused.append(request)
            return HttpResponse(429, {"error": {"code": 429}}, {"Retry-After": "1"})
        return real(request)

    web.answer = answer
    sent = await sent_by(synced)

    assert ("sent", 1, 1) == (sent.status, len(refused), len(remote.sent()))


@pytest.mark.parametrize("remote", WEB, indirect=True)
async def test_a_copy_that_a_busy_provider_made_is_not_repeated(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    told = busy_after(web_of(remote), endings=("/messages",), times=1)
    await send(synced, await local(synced))
    await synced.sync()

    assert (1, ["Sent"]) == (len(told), remote.copies("Hello"))


@pytest.mark.parametrize("remote", WEB, indirect=True)
async def test_all_mail_waits_as_long_as_its_provider_wants(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    web = web_of(remote)
    wait = HttpResponse(429, {"error": {"code": 429}}, {"Retry-After": "86400"})
    web.answer = lambda _: wait
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=3)
    (entry,) = (await ask(synced, outbox.list_outbox)).results
    request = len(web.requests)
    async with outbox_worker(later(synced, timedelta(hours=23))) as worker:
        await worker.finish(2)

    assert ("queued", 86_400) == (sent.status, round(waits_s(entry), -2))
    assert request == len(web.requests)


def waits_s(entry: OutboxEntry) -> float:
    assert entry.next_attempt_at is not None
    return (entry.next_attempt_at - entry.queued_at).total_seconds()


@pytest.mark.parametrize("remote", ["imap"], indirect=True)
async def test_mail_without_a_login_bounces_after_two_days_and_says_so(
    synced: SyncedAccount,
) -> None:
    await synced.sync()
    synced.app.services.providers.remove_secret("work")
    sent = await send(synced, OUTSIDE)
    details = []
    for hours in (0, 1, 48):
        async with outbox_worker(later(synced, timedelta(hours=hours))) as worker:
            await worker.finish(5)
        message = await synced.app.services.store.message(sent.message_id, EVERYTHING)
        assert message is not None
        details += [(r.status, r.detail) for r in message.recipients or ()]

    assert [("queued", None), "queued", "bounced"] == [details[0], details[1][0], details[2][0]]
    assert "run: postroom account login work" in str(details[1][1])
    assert "run: postroom account login work" in str(details[2][1])
