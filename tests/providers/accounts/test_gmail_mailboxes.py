"""Gmail's labels are its mailboxes: a local move shows the same state as the next sync pass."""

from __future__ import annotations

import pytest

from postroom.operations.mail import message_changes
from tests.mails import mail
from tests.providers.accounts.conftest import SyncedAccount
from tests.providers.accounts.remote_mailboxes import ADDRESS, GmailRemote
from tests.providers.accounts.test_every_provider import ask, outgoing_mail

SENT_THERE = ("SENT",)
RECEIVED = ("INBOX", "UNREAD")


@pytest.mark.parametrize("remote", ["gmail"], indirect=True)
@pytest.mark.parametrize(
    ("labels", "destination", "mailboxes", "own"),
    [
        (RECEIVED, "Projects", ("Archive",), ("Projects",)),
        (RECEIVED, "Projects/Old", ("Archive",), ("Projects/Old",)),
        (RECEIVED, "work", ("Archive",), ("work",)),
        (RECEIVED, "Archive", ("Archive",), ()),
        (RECEIVED, "Trash", ("Trash",), ()),
        (SENT_THERE, "Projects", ("Sent",), ("Projects",)),
        (SENT_THERE, "Archive", ("Sent",), ()),
        (SENT_THERE, "Trash", ("Trash",), ()),
        (SENT_THERE, "Junk", ("Junk",), ()),
        (SENT_THERE, "Inbox", ("Inbox", "Sent"), ()),
        (("INBOX", "SENT"), "Projects", ("Sent",), ("Projects",)),
    ],
)
async def test_a_move_shows_at_once_what_the_next_sync_finds(
    synced: SyncedAccount,
    remote: GmailRemote,
    labels: tuple[str, ...],
    destination: str,
    mailboxes: tuple[str, ...],
    own: tuple[str, ...],
) -> None:
    raw = mail("Hello", sender=ADDRESS, to="bo@elsewhere.example")
    remote.gmail.deliver(outgoing_mail("Hello") if labels == RECEIVED else raw, labels)
    await synced.sync()
    here = await synced.message("Hello")
    result = await ask(
        synced, message_changes.move_message, message_id=here.id, destination=destination
    )
    at_once = await synced.message("Hello")
    await synced.sync()
    remote.flag("Hello")
    await synced.sync()

    later = await synced.message("Hello")
    assert "ok" == result.status
    assert (set(mailboxes), own) == (set(at_once.mailboxes), at_once.labels)
    assert (set(mailboxes), own) == (set(later.mailboxes), later.labels)
    assert "flagged" in later.flags
    there = remote.find("Hello")
    assert there is not None
    assert {name.lower() for name in own} == there.labels
    listed = await synced.rows(mailbox=None)
    assert (mailboxes[0] not in ("Trash", "Junk")) == bool(listed)
