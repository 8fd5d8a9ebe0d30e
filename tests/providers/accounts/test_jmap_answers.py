"""What a JMAP server has done, and not done, by what it says (RFC 8620 §3.6.2, §5.3)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from postroom.errors import RateLimited
from postroom.operations import organising
from tests.providers.accounts.conftest import AS_ROOT, Desk
from tests.providers.accounts.test_every_provider import ask, letter
from tests.providers.accounts.test_refused import last_refusal, refusals
from tests.providers.accounts.test_sent_copies import OUTSIDE, later, send, working
from tests.providers.accounts.test_sent_once import BUSY, sent_by
from tests.providers.accounts.worlds import PROXIED, ImapWorld

JMAP = [pytest.param(PROXIED, marks=AS_ROOT)]


@pytest.mark.parametrize("world", JMAP, indirect=True)
async def test_mail_that_a_busy_jmap_server_may_have_sent_is_sent_once(
    desk: Desk, world: ImapWorld
) -> None:
    await desk.sync()
    world.proxy.after = lambda name, _: BUSY if name == "EmailSubmission/set" else None
    sent = await sent_by(desk)

    assert ("unknown", 1) == (sent.status, len(world.sent()))


def not_created(kind: str) -> list[Any]:
    return [["EmailSubmission/set", {"notCreated": {"s": {"type": kind}}}, "0"]]


def error(kind: str) -> list[Any]:
    return [["error", {"type": kind}, "0"]]


@pytest.mark.parametrize("world", JMAP, indirect=True)
@pytest.mark.parametrize(
    ("answered", "status"),
    [
        (not_created("rateLimit"), "queued"),
        (not_created("overQuota"), "queued"),
        (not_created("forbiddenToSend"), "failed"),
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
    world.deliver(letter("Hello"))
    await desk.sync()
    here = await desk.message("Hello")

    def refuse(name: str, arguments: dict[str, Any]) -> Any:
        keys = arguments.get("destroy")
        refused = {key: {"type": "forbidden", "description": "kept by law"} for key in keys or ()}
        return [[name, {"notDestroyed": refused}, "0"]] if keys else None

    world.proxy.instead = refuse
    await ask(desk, organising.delete_message, message_id=here.id, permanent=True)
    await desk.sync()

    assert ["Hello"] == [row.subject for row in await desk.rows()]
    assert "kept by law" in (await last_refusal(desk)).detail


@pytest.mark.parametrize("world", JMAP, indirect=True)
async def test_a_change_that_a_jmap_server_has_no_time_for_waits(
    desk: Desk, world: ImapWorld
) -> None:
    world.deliver(letter("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    busy = error("serverUnavailable")
    world.proxy.instead = lambda _, arguments: busy if "update" in arguments else None
    await ask(desk, organising.update_message, message_id=here.id, flags=["flagged"])
    with pytest.raises(RateLimited):
        await desk.sync()
    assert ("flagged",) == (await desk.message("Hello")).flags
    world.proxy.instead = None
    await later(desk, timedelta(minutes=1)).sync()

    there = world.find("Hello")
    assert there is not None
    assert ({"flagged"}, []) == (there.flags, await refusals(desk))
