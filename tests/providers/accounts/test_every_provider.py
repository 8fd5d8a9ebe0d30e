"""What every provider does alike: one suite, on real servers where there is one."""

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
from tests.providers.accounts.conftest import Desk
from tests.providers.accounts.worlds import ADDRESS, World


def outgoing_mail(subject: str, **more: Any) -> bytes:
    """A mail of this moment: what is older than the account is no news."""
    now = datetime.now(UTC) + timedelta(seconds=2)
    return mail(subject, f"The text of {subject}.", to=ADDRESS, date=now, **more)


async def ask(desk: Desk, operation: Any, **arguments: Any) -> Any:
    return await call(desk.app.context(OWNER), operation, arguments)


async def test_mail_is_found_after_the_first_pass_and_once_only(desk: Desk, world: World) -> None:
    for number in range(5):
        world.deliver(
            outgoing_mail(f"Letter {number}", attachments=[("plan.pdf", "text/x", b"a plan")])
        )

    await desk.sync()
    await desk.sync()

    found = await ask(desk, messages.search_messages, q="PLAN.pdf")
    assert 5 == found.total
    assert {"Inbox"} == {box for row in found.results for box in row.mailboxes}
    account = await desk.app.services.store.account("work", EVERYTHING)
    assert account is not None
    assert ("ready", 5, None) == (account.state, account.synced, account.total)


async def test_new_mail_is_told_of_once(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("One"))
    await desk.sync()
    world.deliver(outgoing_mail("Two"))
    await desk.sync()
    await desk.sync()

    assert ["One", "Two"] == await desk.news()


async def test_a_flag_that_another_client_sets_is_seen(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    world.flag("Hello")
    await desk.sync()

    assert "flagged" in (await desk.message("Hello")).flags


async def test_a_removal_there_is_a_removal_here(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Stays"))
    world.deliver(outgoing_mail("Goes"))
    await desk.sync()
    world.remove("Goes")
    await desk.sync()

    assert ["Stays"] == [row.subject for row in await desk.rows()]


async def test_a_move_there_keeps_the_message(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    before = await desk.message("Hello")
    world.archive("Hello")
    await desk.sync()

    after = await desk.message("Hello")
    assert (before.id, ("Archive",)) == (after.id, after.mailboxes)
    assert ["Hello"] == await desk.news()


async def test_flags_and_labels_reach_the_provider_and_come_back(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    await ask(
        desk,
        message_changes.update_message,
        message_id=here.id,
        flags=["seen", "flagged"],
        labels=["Work", "To do"],
    )
    await desk.sync()

    there = world.find("Hello")
    assert there is not None
    assert {"seen", "flagged"} == there.flags
    assert 2 == len(there.labels)
    await ask(desk, message_changes.update_message, message_id=here.id, flags=[], labels=["Work"])
    await desk.sync()
    await desk.sync()
    there = world.find("Hello")
    assert there is not None
    assert (frozenset(), {"work"}) == (there.flags, there.labels)
    after = await desk.message("Hello")
    assert ((), ("Work",)) == (after.flags, after.labels)


async def test_a_move_here_reaches_the_provider(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    await ask(desk, message_changes.move_message, message_id=here.id, destination="Archive")
    await desk.sync()

    there = world.find("Hello")
    assert there is not None
    assert "Archive" == there.mailbox
    await desk.sync()
    after = await desk.message("Hello")
    assert (here.id, ("Archive",)) == (after.id, after.mailboxes)


async def test_a_mailbox_that_is_not_there_is_made(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    await ask(desk, message_changes.move_message, message_id=here.id, destination="Projects")
    await desk.sync()
    await desk.sync()

    there, after = world.find("Hello"), await desk.message("Hello")
    assert there is not None
    assert "Projects" in (there.mailbox, *(label.title() for label in there.labels))
    assert "Projects" in (*after.mailboxes, *after.labels)
    assert "Inbox" not in after.mailboxes
    assert here.id == after.id


async def test_what_is_removed_here_for_good_is_removed_there(desk: Desk, world: World) -> None:
    world.deliver(outgoing_mail("Hello"))
    await desk.sync()
    here = await desk.message("Hello")
    await ask(desk, message_changes.delete_message, message_id=here.id, permanent=True)
    await desk.sync()
    await desk.sync()

    assert world.find("Hello") is None
    assert [] == await desk.rows()


async def test_after_a_forgotten_state_nothing_is_lost_doubled_or_told_again(
    desk: Desk, world: World
) -> None:
    for number in range(3):
        world.deliver(outgoing_mail(f"Letter {number}"))
    await desk.sync()
    before = {row.id for row in await desk.rows()}
    world.expire()
    world.deliver(outgoing_mail("Letter 3"))
    await desk.sync()

    after = await desk.rows()
    assert 4 == len(after)
    assert before < {row.id for row in after}
    assert [f"Letter {number}" for number in (0, 1, 2, 3)] == sorted(await desk.news())


async def test_mail_goes_out_through_the_provider_with_one_copy(desk: Desk, world: World) -> None:
    await desk.sync()
    outbox = desk.app.outbox()
    work = asyncio.create_task(outbox.run())
    sent = await ask(
        desk,
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
    (raw,) = world.sent()
    assert b"Hello Bo" in raw
    await desk.sync()
    await desk.sync()
    there = world.find("From us")
    assert there is not None
    assert there.mailbox.startswith("Sent")
    assert [sent.message_id] == [row.id for row in await desk.rows()]


async def test_what_it_says_it_can_do_is_true(desk: Desk, world: World) -> None:
    await desk.sync()
    told = await ask(desk, accounts.get_capabilities, account_id="work")
    checked = await ask(desk, accounts.check_account, account_id="work")

    assert world.arguments["provider"] == told.provider
    assert (told.has_labels, told.can_send) == (True, True)
    assert told.has_push is checked.has_push is (told.provider == "imap")
    # Cyrus allows 10 MB of files in a mail.
    most = 10 if told.provider == "fastmail" else 25
    assert most == told.max_attachment_size_mb == checked.max_attachment_size_mb
    assert ["work"] == [one.account_id for one in told.accounts]
