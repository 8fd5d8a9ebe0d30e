"""Who got a blind copy is told by the copy in Sent, and by nothing that anybody receives."""

from __future__ import annotations

from email import message_from_bytes
from email.message import Message

import pytest

from tests.providers.accounts.conftest import AS_ROOT, Desk
from tests.providers.accounts.test_sent_copies import OUTSIDE, local, send, working
from tests.providers.accounts.worlds import GmailWorld, GraphWorld, ImapWorld, World

HIDDEN = "di@elsewhere.example"


def copy_in_sent(world: World) -> Message:
    if isinstance(world, GraphWorld):
        (raw,) = (m.raw for m in world.graph.mails.values() if m.folder == "f-sentitems")
        return message_from_bytes(raw)
    if isinstance(world, GmailWorld):
        (row,) = world._rows("Hello")
        copy = Message()
        for header in row["payload"]["headers"]:
            copy[header["name"]] = header["value"]
        return copy
    assert isinstance(world, ImapWorld)
    ((_, raw), *_) = world.imap.fetch(world._there("Hello"), "(BODY.PEEK[])")[1]  # type: ignore[misc]
    return message_from_bytes(raw)


@pytest.mark.parametrize("world", ["imap", "imap-plain", "gmail", "outlook"], indirect=True)
async def test_the_copy_that_we_make_names_who_got_a_blind_copy(desk: Desk, world: World) -> None:
    await desk.sync()
    address, hidden = await local(desk), await local(desk, "di")
    await send(desk, address, bcc=[hidden])
    await desk.sync()

    copy = copy_in_sent(world)
    assert (address, hidden) == (copy["To"], copy["Bcc"])
    received = await desk.rows(inbox_id=None)
    assert 3 == len(received)


@pytest.mark.parametrize(
    ("world", "named"),
    [("imap", HIDDEN), pytest.param("fastmail", None, marks=AS_ROOT)],
    indirect=["world"],
)
async def test_nobody_who_gets_a_mail_sees_its_blind_copies(
    desk: Desk, world: ImapWorld, named: str | None
) -> None:
    """A JMAP server may send the header on, so that its copy has none."""
    await desk.sync()
    async with working(desk):
        await send(desk, OUTSIDE, bcc=[HIDDEN], wait_s=20)
    await desk.sync()

    (out,) = world.relay.mails
    assert ({OUTSIDE, HIDDEN}, False) == (set(out.recipients), HIDDEN.encode() in out.data)
    assert named == copy_in_sent(world)["Bcc"]
