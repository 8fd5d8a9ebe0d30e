"""What is changed here waits for the provider, and is told to it and to nobody else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.model.account import RefusedChange
from postroom.model.remote import Pushed, Refusal, RemoteChanges, RemoteMessage, RemoteRef
from postroom.model.stored import Change
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, put_away
from tests.mails import mail, new_inbox
from tests.stores.accounts import ONE, TWO, arrive, new_account


async def test_a_change_here_waits_for_the_provider_and_keeps_what_it_says_out(
    house: House,
) -> None:
    account = await new_account(house)
    message_id = await arrive(house, account, mail(), ONE)
    change = Change(flags=("seen",), add_labels=("Work",), move_to="Archive")
    await house.store.change_messages([message_id], change, None)
    told = RemoteMessage(ONE, ("Inbox",), ("flagged",), ("Old",))
    await house.store.apply_changes(account.id, RemoteChanges({}, (told,)))
    (push,) = await house.store.due_pushes(account.id, house.clock(), 10)

    assert (("seen",), ("Work",), "Archive") == (push.add_flags, push.add_labels, push.move_to)
    assert ((ONE, ("Inbox",)),) == push.refs
    message = await house.store.message(message_id, None)
    assert message is not None
    assert (("seen",), ("Work",), ("Archive",)) == (
        message.flags,
        message.labels,
        message.mailboxes,
    )
    pushed = Pushed(left=(ONE,), entered=((TWO, ("Archive",)),))
    await house.store.settle_push(account.id, push, pushed)
    await house.store.sweep_gone(account.id, 10)
    told = RemoteMessage(TWO, ("Archive",), ("seen", "flagged"), ("work",))
    await house.store.apply_changes(account.id, RemoteChanges({}, (told,)))
    message = await house.store.message(message_id, None)
    assert message is not None
    assert (("seen", "flagged"), ("Work",)) == (message.flags, message.labels)


async def test_a_change_of_a_local_message_is_told_to_nobody(house: House) -> None:
    account, inbox = await new_account(house), await new_inbox(house)
    from tests.mails import deliver

    added = await deliver(house, inbox, mail())
    await house.store.change_messages([added.message_id], Change(flags=("seen",)), None)

    assert [] == await house.store.due_pushes(account.id, house.clock(), 10)


async def test_what_failed_is_tried_again_in_order(house: House) -> None:
    account = await new_account(house)
    message_id = await arrive(house, account, mail(), ONE)
    for flags in (("seen",), ("seen", "flagged")):
        await house.store.change_messages([message_id], Change(flags=flags), None)
    first, _ = await house.store.due_pushes(account.id, house.clock(), 10)
    later = house.clock() + timedelta(minutes=5)
    await house.store.defer_push(first, later)

    assert [] == await house.store.due_pushes(account.id, house.clock(), 10)
    due = await house.store.due_pushes(account.id, later + timedelta(seconds=1), 10)
    assert [first.number, first.number + 1] == [push.number for push in due]


async def test_a_refusal_is_kept_with_the_account(house: House) -> None:
    account = await new_account(house)
    message_id = await arrive(house, account, mail(), ONE)
    await house.store.change_messages([message_id], Change(flags=("seen",)), None)
    (push,) = await house.store.due_pushes(account.id, house.clock(), 10)
    at = house.clock().replace(microsecond=0)
    await house.store.give_up_push(account.id, push, Refusal("it said no", at))

    found = await house.store.account(account.id, None)
    assert found is not None
    refused = RefusedChange(at, message_id, {"add_flags": ["seen"]}, "it said no")
    assert refused == found.last_refusal


async def test_in_gmail_a_move_to_a_mailbox_of_ones_own_is_a_label(house: House) -> None:
    account = await new_account(house, provider="gmail")
    message_id = await arrive(house, account, mail(), RemoteRef("", "a"))
    await house.store.change_messages([message_id], Change(move_to="Projects"), None)

    message = await house.store.message(message_id, None)
    assert message is not None
    assert (("Projects",), ("Archive",)) == (message.labels, message.mailboxes)


@pytest.mark.parametrize("provider", ["imap", "gmail"])
async def test_what_rules_did_at_arrival_is_told_to_the_provider(
    house: House, provider: str
) -> None:
    account = await new_account(house, provider=provider)
    remote = RemoteMessage(ONE, ("Inbox",), ("flagged",), ("Old",))
    (parsed,) = await house.parser.parse([mail()])
    async with put_away(house, [(Arrival(mail(), account.inbox_id), parsed)]) as (message,):
        ruled = replace(
            message, flags=("flagged", "seen"), labels=("New",), mailboxes=("Projects",)
        )
        (added,) = await house.store.add_remote(account.id, [(ruled, remote)])

    (push,) = await house.store.due_pushes(account.id, house.clock(), 10)
    stored = await house.store.message(added.message_id, None)
    assert stored is not None
    is_gmail = provider == "gmail"
    labels, place = (("New", "Projects"), "Archive") if is_gmail else (("New",), "Projects")
    assert (labels, (place,), ("seen", "flagged")) == (
        stored.labels,
        stored.mailboxes,
        stored.flags,
    )
    assert (("seen",), (), labels, ("Old",), place) == (
        push.add_flags,
        push.remove_flags,
        push.add_labels,
        push.remove_labels,
        push.move_to,
    )


async def test_mail_that_rules_leave_alone_is_told_to_nobody(house: House) -> None:
    account = await new_account(house)
    await arrive(house, account, mail(), ONE)

    assert [] == await house.store.due_pushes(account.id, house.clock(), 10)
