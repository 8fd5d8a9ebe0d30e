"""A message in two mailboxes of an IMAP server is one message, also after a move."""

from __future__ import annotations

import pytest

from postroom.operations.mail import message_changes
from tests.providers.accounts.conftest import SyncedAccount
from tests.providers.accounts.remote_mailboxes import ImapRemote
from tests.providers.accounts.test_every_provider import ask, outgoing_mail


def copies(remote: ImapRemote, mailbox: str) -> int:
    remote.imap.select(mailbox)
    _, found = remote.imap.search(None, "SUBJECT", '"Hello"', "UNDELETED")
    return len(found[0].split())


@pytest.mark.parametrize("remote", ["imap", "imap-plain"], indirect=True)
@pytest.mark.parametrize(
    ("destination", "mailbox"),
    [("Inbox", "INBOX"), ("Archive", "Archive"), ("Trash", "Papierkorb"), ("New", "New")],
)
async def test_one_copy_remains_after_a_move(
    synced: SyncedAccount, remote: ImapRemote, destination: str, mailbox: str
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    remote.imap.select("INBOX")
    remote.imap.copy("1", "Archive")
    await synced.sync()
    here = await synced.message("Hello")
    assert {"Inbox", "Archive"} == set(here.mailboxes)
    await ask(synced, message_changes.move_message, message_id=here.id, destination=destination)
    await synced.sync()
    await synced.sync()

    there = {name: copies(remote, name) for name in ("INBOX", "Archive", mailbox)}
    assert {"INBOX": 0, "Archive": 0} | {mailbox: 1} == there
    after = await synced.message("Hello")
    assert (here.id, (destination,)) == (after.id, after.mailboxes)
