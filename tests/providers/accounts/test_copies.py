"""A message that is in two mailboxes of an IMAP server is one message, also after a move."""

from __future__ import annotations

import pytest

from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import Desk
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.worlds import ImapWorld


def copies(world: ImapWorld, mailbox: str) -> int:
    world.imap.select(mailbox)
    _, found = world.imap.search(None, "SUBJECT", '"Hello"', "UNDELETED")
    return len(found[0].split())


@pytest.mark.parametrize("world", ["imap", "imap-plain"], indirect=True)
@pytest.mark.parametrize(
    ("destination", "mailbox"),
    [("Inbox", "INBOX"), ("Archive", "Archive"), ("Trash", "Papierkorb"), ("New", "New")],
)
async def test_one_copy_remains_after_a_move(
    desk: Desk, world: ImapWorld, destination: str, mailbox: str
) -> None:
    world.deliver(outgoing_mail("Hello"))
    world.imap.select("INBOX")
    world.imap.copy("1", "Archive")
    await desk.sync()
    here = await desk.message("Hello")
    assert {"Inbox", "Archive"} == set(here.mailboxes)
    await ask(desk, message_changes.move_message, message_id=here.id, destination=destination)
    await desk.sync()
    await desk.sync()

    there = {name: copies(world, name) for name in ("INBOX", "Archive", mailbox)}
    assert {"INBOX": 0, "Archive": 0} | {mailbox: 1} == there
    after = await desk.message("Hello")
    assert (here.id, (destination,)) == (after.id, after.mailboxes)
