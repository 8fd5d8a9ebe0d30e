"""Partial failures of a JMAP server are read from its responses (RFC 8620 §3.6.2, §5.3)."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from postroom.errors import RateLimited
from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import AS_ROOT, SyncedAccount
from tests.providers.accounts.remote_mailboxes import PROXIED, ImapRemote
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.test_refused_changes import last_refusal, refusals
from tests.providers.accounts.test_sent_copies import OUTSIDE, later, outbox_worker, send
from tests.providers.accounts.test_sent_once import BUSY, sent_by
from tests.servers.web import HttpRequest, HttpResponse

JMAP = [pytest.param(PROXIED, marks=AS_ROOT)]


@pytest.mark.parametrize("remote", JMAP, indirect=True)
async def test_a_submission_that_a_busy_jmap_server_may_have_made_is_not_repeated(
    synced: SyncedAccount, remote: ImapRemote
) -> None:
    await synced.sync()
    remote.proxy.after = lambda name, _: BUSY if name == "EmailSubmission/set" else None
    sent = await sent_by(synced)

    assert ("unknown", 1) == (sent.status, len(remote.sent()))


def not_created(kind: str, **more: Any) -> list[Any]:
    return [["EmailSubmission/set", {"notCreated": {"s": {"type": kind, **more}}}, "0"]]


def error(kind: str) -> list[Any]:
    return [["error", {"type": kind}, "0"]]


@pytest.mark.parametrize("remote", JMAP, indirect=True)
@pytest.mark.parametrize(
    ("answered", "status"),
    [
        (not_created("rateLimit"), "queued"),
        (not_created("overQuota"), "queued"),
        (not_created("forbiddenToSend"), "failed"),
        (not_created("forbiddenToSend", description="5.7.1 no"), "failed"),
        (not_created("forbiddenToSend", description="4.3.0 later"), "queued"),
        (not_created("smtpProtocolError", description="go ahead"), "unknown"),
        (error("serverUnavailable"), "queued"),
        (error("serverFail"), "unknown"),
        (error("serverPartialFail"), "unknown"),
        (error("invalidArguments"), "failed"),
        ([], "unknown"),
        ([["EmailSubmission/set", {"created": None, "notCreated": None}, "0"]], "unknown"),
    ],
    ids=str,
)
async def test_only_an_accepted_jmap_submission_is_sent(
    synced: SyncedAccount, remote: ImapRemote, answered: list[Any], status: str
) -> None:
    await synced.sync()
    remote.proxy.instead = lambda name, _: answered if name == "EmailSubmission/set" else None
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=3)

    assert (status, []) == (sent.status, remote.sent())


@pytest.mark.parametrize("remote", JMAP, indirect=True)
@pytest.mark.parametrize(
    "refusal",
    [{"type": "invalidProperties", "properties": ["blobId"]}, {"type": "blobNotFound"}],
    ids=str,
)
async def test_mail_is_queued_while_a_jmap_server_does_not_find_its_upload(
    synced: SyncedAccount, remote: ImapRemote, refusal: dict[str, Any]
) -> None:
    await synced.sync()
    answered = [["Email/import", {"notCreated": {"m": refusal}}, "0"]]
    remote.proxy.instead = lambda name, _: answered if name == "Email/import" else None
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=3)

    assert ("queued", []) == (sent.status, remote.sent())


@pytest.mark.parametrize("remote", JMAP, indirect=True)
async def test_mail_is_queued_while_a_jmap_server_refuses_uploads(
    synced: SyncedAccount, remote: ImapRemote
) -> None:
    await synced.sync()
    web = remote.proxy.web
    real, missing = web.answer, HttpResponse(404, b"")
    web.answer = lambda request: missing if "/upload/" in request.path else real(request)
    async with outbox_worker(synced):
        sent = await send(synced, OUTSIDE, wait_s=3)

    assert ("queued", []) == (sent.status, remote.sent())


@pytest.mark.parametrize("remote", JMAP, indirect=True)
async def test_concurrent_sends_are_imported_in_sequence(
    synced: SyncedAccount, remote: ImapRemote
) -> None:
    """Cyrus sometimes loses an upload when two of its processes import at the same time."""
    await synced.sync()
    web = remote.proxy.web
    real, active, most = web.answer, list[HttpRequest](), list[int]()

    def answer(request: HttpRequest) -> HttpResponse:
        if "/upload/" not in request.path and b'"Email/import"' not in request.body:
            return real(request)
        active.append(request)
        most.append(len(active))
        time.sleep(0.1)
        answered = real(request)
        active.remove(request)
        return answered

    web.answer = answer
    async with outbox_worker(synced):
        sent = await asyncio.gather(
            *(send(synced, f"bo{n}@elsewhere.example", wait_s=30) for n in range(4))
        )

    assert ["sent"] * 4 == [one.status for one in sent]
    assert [1] * 8 == most


@pytest.mark.parametrize("remote", JMAP, indirect=True)
async def test_mail_is_sent_even_if_the_move_to_sent_fails(
    synced: SyncedAccount, remote: ImapRemote
) -> None:
    """The server has sent it, and could not move it to Sent."""
    await synced.sync()
    created = ["EmailSubmission/set", {"created": {"s": {"id": "s1"}}}, "0"]
    answered = [created, ["error", {"type": "serverFail"}, "0"]]
    remote.proxy.instead = lambda name, _: answered if name == "EmailSubmission/set" else None

    assert "sent" == (await sent_by(synced)).status


@pytest.mark.parametrize("remote", JMAP, indirect=True)
async def test_a_deletion_refused_by_a_jmap_server_is_undone_and_reported(
    synced: SyncedAccount, remote: ImapRemote
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")

    def refuse(name: str, arguments: dict[str, Any]) -> Any:
        keys = arguments.get("destroy")
        refused = {key: {"type": "forbidden", "description": "kept by law"} for key in keys or ()}
        return [[name, {"notDestroyed": refused}, "0"]] if keys else None

    remote.proxy.instead = refuse
    await ask(synced, message_changes.delete_message, message_id=here.id, permanent=True)
    await synced.sync()

    assert ["Hello"] == [row.subject for row in await synced.rows()]
    assert "kept by law" in (await last_refusal(synced)).detail


@pytest.mark.parametrize("remote", JMAP, indirect=True)
async def test_a_change_that_a_busy_jmap_server_refuses_is_retried(
    synced: SyncedAccount, remote: ImapRemote
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")
    busy = error("serverUnavailable")
    remote.proxy.instead = lambda _, arguments: busy if "update" in arguments else None
    await ask(synced, message_changes.update_message, message_id=here.id, flags=["flagged"])
    with pytest.raises(RateLimited):
        await synced.sync()
    assert ("flagged",) == (await synced.message("Hello")).flags
    remote.proxy.instead = None
    await later(synced, timedelta(minutes=1)).sync()

    there = remote.find("Hello")
    assert there is not None
    assert ({"flagged"}, []) == (there.flags, await refusals(synced))
