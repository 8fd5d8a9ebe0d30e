"""What a JMAP server has done, and not done, by what it says (RFC 8620 §3.6.2, §5.3)."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from postroom.errors import RateLimited
from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import AS_ROOT, Desk
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.test_refused import last_refusal, refusals
from tests.providers.accounts.test_sent_copies import OUTSIDE, later, send, working
from tests.providers.accounts.test_sent_once import BUSY, sent_by
from tests.providers.accounts.worlds import PROXIED, ImapWorld
from tests.servers.web import HttpRequest, HttpResponse

JMAP = [pytest.param(PROXIED, marks=AS_ROOT)]


@pytest.mark.parametrize("world", JMAP, indirect=True)
async def test_mail_that_a_busy_jmap_server_may_have_sent_is_sent_once(
    desk: Desk, world: ImapWorld
) -> None:
    await desk.sync()
    world.proxy.after = lambda name, _: BUSY if name == "EmailSubmission/set" else None
    sent = await sent_by(desk)

    assert ("unknown", 1) == (sent.status, len(world.sent()))


def not_created(kind: str, **more: Any) -> list[Any]:
    return [["EmailSubmission/set", {"notCreated": {"s": {"type": kind, **more}}}, "0"]]


def error(kind: str) -> list[Any]:
    return [["error", {"type": kind}, "0"]]


@pytest.mark.parametrize("world", JMAP, indirect=True)
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
async def test_only_what_a_jmap_server_says_it_has_taken_is_sent(
    desk: Desk, world: ImapWorld, answered: list[Any], status: str
) -> None:
    await desk.sync()
    world.proxy.instead = lambda name, _: answered if name == "EmailSubmission/set" else None
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=3)

    assert (status, []) == (sent.status, world.sent())


@pytest.mark.parametrize("world", JMAP, indirect=True)
@pytest.mark.parametrize(
    "refusal",
    [{"type": "invalidProperties", "properties": ["blobId"]}, {"type": "blobNotFound"}],
    ids=str,
)
async def test_mail_is_queued_while_a_jmap_server_does_not_find_its_upload(
    desk: Desk, world: ImapWorld, refusal: dict[str, Any]
) -> None:
    await desk.sync()
    answered = [["Email/import", {"notCreated": {"m": refusal}}, "0"]]
    world.proxy.instead = lambda name, _: answered if name == "Email/import" else None
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=3)

    assert ("queued", []) == (sent.status, world.sent())


@pytest.mark.parametrize("world", JMAP, indirect=True)
async def test_mail_is_queued_while_a_jmap_server_takes_no_upload(
    desk: Desk, world: ImapWorld
) -> None:
    await desk.sync()
    web = world.proxy.web
    real, missing = web.answer, HttpResponse(404, b"")
    web.answer = lambda request: missing if "/upload/" in request.path else real(request)
    async with working(desk):
        sent = await send(desk, OUTSIDE, wait_s=3)

    assert ("queued", []) == (sent.status, world.sent())


@pytest.mark.parametrize("world", JMAP, indirect=True)
async def test_mails_that_are_sent_at_once_are_imported_one_after_the_other(
    desk: Desk, world: ImapWorld
) -> None:
    """Cyrus loses an upload now and then when two of its processes import at once."""
    await desk.sync()
    web = world.proxy.web
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
    async with working(desk):
        sent = await asyncio.gather(
            *(send(desk, f"bo{n}@elsewhere.example", wait_s=30) for n in range(4))
        )

    assert ["sent"] * 4 == [one.status for one in sent]
    assert [1] * 8 == most


@pytest.mark.parametrize("world", JMAP, indirect=True)
async def test_mail_is_sent_whatever_becomes_of_what_follows(desk: Desk, world: ImapWorld) -> None:
    """The server has sent it, and could not move it to Sent."""
    await desk.sync()
    created = ["EmailSubmission/set", {"created": {"s": {"id": "s1"}}}, "0"]
    answered = [created, ["error", {"type": "serverFail"}, "0"]]
    world.proxy.instead = lambda name, _: answered if name == "EmailSubmission/set" else None

    assert "sent" == (await sent_by(desk)).status


@pytest.mark.parametrize("world", JMAP, indirect=True)
async def test_a_deletion_that_a_jmap_server_refuses_is_undone_here_and_told(
    desk: Desk, world: ImapWorld
) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")

    def refuse(name: str, arguments: dict[str, Any]) -> Any:
        keys = arguments.get("destroy")
        refused = {key: {"type": "forbidden", "description": "kept by law"} for key in keys or ()}
        return [[name, {"notDestroyed": refused}, "0"]] if keys else None

    world.proxy.instead = refuse
    await ask(desk, message_changes.delete_message, message_id=here.id, permanent=True)
    await desk.sync()

    assert ["Hello"] == [row.subject for row in await desk.rows()]
    assert "kept by law" in (await last_refusal(desk)).detail


@pytest.mark.parametrize("world", JMAP, indirect=True)
async def test_a_change_that_a_jmap_server_has_no_time_for_waits(
    desk: Desk, world: ImapWorld
) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    busy = error("serverUnavailable")
    world.proxy.instead = lambda _, arguments: busy if "update" in arguments else None
    await ask(desk, message_changes.update_message, message_id=here.id, flags=["flagged"])
    with pytest.raises(RateLimited):
        await desk.sync()
    assert ("flagged",) == (await desk.message("Hello")).flags
    world.proxy.instead = None
    await later(desk, timedelta(minutes=1)).sync()

    there = world.find("Hello")
    assert there is not None
    assert ({"flagged"}, []) == (there.flags, await refusals(desk))
