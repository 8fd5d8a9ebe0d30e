"""Behaviour of every provider: one suite, on real servers where available."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from postroom.calls.operation import call
from postroom.model.key import OWNER
from postroom.model.view import EVERYTHING
from postroom.operations import accounts
from postroom.operations.mail import message_changes, messages
from postroom.operations.outgoing import sending
from tests.mails import mail
from tests.providers.accounts.conftest import SyncedAccount
from tests.providers.accounts.remote_mailboxes import ADDRESS, RemoteMailbox


def outgoing_mail(subject: str, **more: Any) -> bytes:
    """A mail with the current time: mail older than the account is not new."""
    now = datetime.now(UTC) + timedelta(seconds=2)
    return mail(subject, f"The text of {subject}.", to=ADDRESS, date=now, **more)


async def ask(synced: SyncedAccount, operation: Any, **arguments: Any) -> Any:
    return await call(synced.app.context(OWNER), operation, arguments)


async def test_mail_is_stored_once_by_the_first_sync(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    for number in range(5):
        remote.deliver(
            outgoing_mail(f"Letter {number}", attachments=[("plan.pdf", "text/x", b"a plan")])
        )

    await synced.sync()
    await synced.sync()

    found = await ask(synced, messages.search_messages, q="PLAN.pdf")
    assert 5 == found.total
    assert {"Inbox"} == {box for row in found.results for box in row.mailboxes}
    account = await synced.app.services.store.account("work", EVERYTHING)
    assert account is not None
    assert ("ready", 5, None) == (account.state, account.synced, account.total)


async def test_new_mail_has_one_event(synced: SyncedAccount, remote: RemoteMailbox) -> None:
    remote.deliver(outgoing_mail("One"))
    await synced.sync()
    remote.deliver(outgoing_mail("Two"))
    await synced.sync()
    await synced.sync()

    assert ["One", "Two"] == await synced.received()


async def test_a_flag_set_by_another_client_is_synced(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    remote.flag("Hello")
    await synced.sync()

    assert "flagged" in (await synced.message("Hello")).flags


async def test_a_remote_deletion_deletes_the_message(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    remote.deliver(outgoing_mail("Stays"))
    remote.deliver(outgoing_mail("Goes"))
    await synced.sync()
    remote.remove("Goes")
    await synced.sync()

    assert ["Stays"] == [row.subject for row in await synced.rows()]


async def test_a_remote_move_keeps_the_message(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    before = await synced.message("Hello")
    remote.archive("Hello")
    await synced.sync()

    after = await synced.message("Hello")
    assert (before.id, ("Archive",)) == (after.id, after.mailboxes)
    assert ["Hello"] == await synced.received()


async def test_flags_and_labels_are_synced_both_ways(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")
    await ask(
        synced,
        message_changes.update_message,
        message_id=here.id,
        flags=["seen", "flagged"],
        labels=["Work", "To do"],
    )
    await synced.sync()

    there = remote.find("Hello")
    assert there is not None
    assert {"seen", "flagged"} == there.flags
    assert 2 == len(there.labels)
    await ask(synced, message_changes.update_message, message_id=here.id, flags=[], labels=["Work"])
    await synced.sync()
    await synced.sync()
    there = remote.find("Hello")
    assert there is not None
    assert (frozenset(), {"work"}) == (there.flags, there.labels)
    after = await synced.message("Hello")
    assert ((), ("Work",)) == (after.flags, after.labels)


async def test_a_local_move_is_pushed(synced: SyncedAccount, remote: RemoteMailbox) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")
    await ask(synced, message_changes.move_message, message_id=here.id, destination="Archive")
    await synced.sync()

    there = remote.find("Hello")
    assert there is not None
    assert "Archive" == there.mailbox
    await synced.sync()
    after = await synced.message("Hello")
    assert (here.id, ("Archive",)) == (after.id, after.mailboxes)


async def test_changes_of_one_message_before_a_sync_are_made_in_order(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    subjects = ("Trashed", "Back", "Flagged", "First flagged")
    for subject in subjects:
        remote.deliver(outgoing_mail(subject))
    await synced.sync()
    ids = {subject: (await synced.message(subject)).id for subject in subjects}
    changes: tuple[tuple[str, dict[str, Any]], ...] = (
        *(("Trashed", {"destination": name}) for name in ("Archive", "Trash")),
        *(("Back", {"destination": name}) for name in ("Archive", "Inbox")),
        *(
            ("Flagged", change)
            for change in ({"destination": "Archive"}, {"add_flags": ["flagged"]})
        ),
        ("First flagged", {"add_flags": ["flagged"]}),
        ("First flagged", {"destination": "Archive"}),
    )
    for subject, change in changes:
        is_move = "destination" in change
        operation = message_changes.move_message if is_move else message_changes.update_message
        await ask(synced, operation, message_id=ids[subject], **change)
    for _ in range(2):
        await synced.sync()

    expected = {
        "Trashed": ("Trash", False),
        "Back": ("Inbox", False),
        "Flagged": ("Archive", True),
        "First flagged": ("Archive", True),
    }
    for subject, (mailbox, is_flagged) in expected.items():
        here, there = await synced.message(subject), remote.find(subject)
        assert there is not None
        assert (ids[subject], (mailbox,)) == (here.id, here.mailboxes)
        assert is_flagged is ("flagged" in here.flags) is ("flagged" in there.flags)
        assert mailbox == there.mailbox.removesuffix(" Items").replace("Deleted", "Trash")


async def test_a_missing_mailbox_is_created(synced: SyncedAccount, remote: RemoteMailbox) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")
    await ask(synced, message_changes.move_message, message_id=here.id, destination="Projects")
    await synced.sync()
    await synced.sync()

    there, after = remote.find("Hello"), await synced.message("Hello")
    assert there is not None
    assert "Projects" in (there.mailbox, *(label.title() for label in there.labels))
    assert "Projects" in (*after.mailboxes, *after.labels)
    assert "Inbox" not in after.mailboxes
    assert here.id == after.id


async def test_a_permanent_deletion_is_pushed(synced: SyncedAccount, remote: RemoteMailbox) -> None:
    remote.deliver(outgoing_mail("Hello"))
    await synced.sync()
    here = await synced.message("Hello")
    await ask(synced, message_changes.delete_message, message_id=here.id, permanent=True)
    await synced.sync()
    await synced.sync()

    assert remote.find("Hello") is None
    assert [] == await synced.rows()


async def test_an_expired_sync_state_loses_and_repeats_nothing(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    for number in range(3):
        remote.deliver(outgoing_mail(f"Letter {number}"))
    await synced.sync()
    before = {row.id for row in await synced.rows()}
    remote.expire()
    remote.deliver(outgoing_mail("Letter 3"))
    await synced.sync()

    after = await synced.rows()
    assert 4 == len(after)
    assert before < {row.id for row in after}
    assert [f"Letter {number}" for number in (0, 1, 2, 3)] == sorted(await synced.received())


async def test_mail_sent_through_the_provider_has_one_copy_in_sent(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    outbox = synced.app.outbox()
    work = asyncio.create_task(outbox.run())
    sent = await ask(
        synced,
        sending.send_message,
        to=["bo@elsewhere.example"],
        bcc=["hidden@elsewhere.example"],
        subject="From us",
        body_text="Hello Bo",
        wait_s=20,
    )
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)

    assert "sent" == sent.status, sent
    (raw,) = remote.sent()
    assert b"Hello Bo" in raw
    await synced.sync()
    await synced.sync()
    there = remote.find("From us")
    assert there is not None
    assert there.mailbox.startswith("Sent")
    assert [sent.message_id] == [row.id for row in await synced.rows()]


async def test_the_announced_capabilities_are_true(
    synced: SyncedAccount, remote: RemoteMailbox
) -> None:
    await synced.sync()
    told = await ask(synced, accounts.get_capabilities, account_id="work")
    checked = await ask(synced, accounts.check_account, account_id="work")

    assert remote.arguments["provider"] == told.provider
    assert (told.has_labels, told.can_send) == (True, True)
    assert told.has_push is checked.has_push is (told.provider == "imap")
    # Cyrus allows 10 MB of files in a mail.
    most = 10 if told.provider == "fastmail" else 25
    assert most == told.max_attachment_size_mb == checked.max_attachment_size_mb
    assert ["work"] == [one.account_id for one in told.accounts]
