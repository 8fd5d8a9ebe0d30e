"""Gmail's labels are its mailboxes: what a move says here holds after the next look too."""

from __future__ import annotations

import pytest

from postroom.operations.mail import message_changes
from tests.mails import mail
from tests.providers.accounts.conftest import Desk
from tests.providers.accounts.test_every_provider import ask, outgoing_mail
from tests.providers.accounts.worlds import ADDRESS, GmailWorld

SENT_THERE = ("SENT",)
RECEIVED = ("INBOX", "UNREAD")


@pytest.mark.parametrize("world", ["gmail"], indirect=True)
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
async def test_a_move_shows_at_once_what_the_next_look_finds(
    desk: Desk,
    world: GmailWorld,
    labels: tuple[str, ...],
    destination: str,
    mailboxes: tuple[str, ...],
    own: tuple[str, ...],
) -> None:
    raw = mail("Hello", sender=ADDRESS, to="bo@elsewhere.example")
    world.gmail.deliver(outgoing_mail("Hello") if labels == RECEIVED else raw, labels)
    await desk.sync()
    here = await desk.message("Hello")
    result = await ask(
        desk, message_changes.move_message, message_id=here.id, destination=destination
    )
    at_once = await desk.message("Hello")
    await desk.sync()
    world.flag("Hello")
    await desk.sync()

    later = await desk.message("Hello")
    assert "ok" == result.status
    assert (set(mailboxes), own) == (set(at_once.mailboxes), at_once.labels)
    assert (set(mailboxes), own) == (set(later.mailboxes), later.labels)
    assert "flagged" in later.flags
    there = world.find("Hello")
    assert there is not None
    assert {name.lower() for name in own} == there.labels
    listed = await desk.rows(mailbox=None)
    assert (mailboxes[0] not in ("Trash", "Junk")) == bool(listed)
