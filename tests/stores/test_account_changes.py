"""Local changes are queued for the provider of their account, and for no other."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.model.account import (
    Pushed,
    Refusal,
    RefusedChange,
    RemoteChanges,
    RemoteMessage,
    RemoteRef,
)
from postroom.model.mail.storage import Change
from postroom.model.view import EVERYTHING
from postroom.pipeline.ingest import Arrival
from postroom.pipeline.services import Services
from tests.mails import mail, new_inbox, prepare
from tests.stores.accounts import ONE, TWO, arrive, new_account


async def test_a_pending_local_change_overrides_the_state_at_the_provider(
    services: Services,
) -> None:
    account = await new_account(services)
    message_id = await arrive(services, account, mail(), ONE)
    change = Change(flags=("seen",), add_labels=("Work",), move_to="Archive")
    await services.store.change_messages([message_id], change, EVERYTHING)
    told = RemoteMessage(ONE, ("Inbox",), ("flagged",), ("Old",))
    await services.store.apply_changes(account.id, RemoteChanges({}, (told,)))
    (push,) = await services.store.due_pushes(account.id, services.clock(), 10)

    assert (("seen",), ("Work",), "Archive") == (push.add_flags, push.add_labels, push.move_to)
    assert ((ONE, ("Inbox",)),) == push.refs
    message = await services.store.message(message_id, EVERYTHING)
    assert message is not None
    assert (("seen",), ("Work",), ("Archive",)) == (
        message.flags,
        message.labels,
        message.mailboxes,
    )
    pushed = Pushed(removed_refs=(ONE,), added_refs=((TWO, ("Archive",)),))
    await services.store.settle_push(account.id, push, pushed)
    await services.store.remove_remotely_deleted(account.id, 10)
    told = RemoteMessage(TWO, ("Archive",), ("seen", "flagged"), ("work",))
    await services.store.apply_changes(account.id, RemoteChanges({}, (told,)))
    message = await services.store.message(message_id, EVERYTHING)
    assert message is not None
    assert (("seen", "flagged"), ("Work",)) == (message.flags, message.labels)


async def test_a_change_of_a_local_message_is_not_queued(services: Services) -> None:
    account, inbox = await new_account(services), await new_inbox(services)
    from tests.mails import deliver

    added = await deliver(services, inbox, mail())
    await services.store.change_messages([added.message_id], Change(flags=("seen",)), EVERYTHING)

    assert [] == await services.store.due_pushes(account.id, services.clock(), 10)


async def test_failed_changes_are_retried_in_order(services: Services) -> None:
    account = await new_account(services)
    message_id = await arrive(services, account, mail(), ONE)
    for flags in (("seen",), ("seen", "flagged")):
        await services.store.change_messages([message_id], Change(flags=flags), EVERYTHING)
    first, _ = await services.store.due_pushes(account.id, services.clock(), 10)
    later = services.clock() + timedelta(minutes=5)
    await services.store.defer_push(first, later)

    assert [] == await services.store.due_pushes(account.id, services.clock(), 10)
    due = await services.store.due_pushes(account.id, later + timedelta(seconds=1), 10)
    assert [first.number, first.number + 1] == [push.number for push in due]


async def test_a_refusal_is_stored_with_the_account(services: Services) -> None:
    account = await new_account(services)
    message_id = await arrive(services, account, mail(), ONE)
    await services.store.change_messages([message_id], Change(flags=("seen",)), EVERYTHING)
    (push,) = await services.store.due_pushes(account.id, services.clock(), 10)
    at = services.clock().replace(microsecond=0)
    await services.store.abandon_push(account.id, push, Refusal("it said no", at))

    found = await services.store.account(account.id, EVERYTHING)
    assert found is not None
    refused = RefusedChange(at, message_id, {"add_flags": ["seen"]}, "it said no")
    assert refused == found.last_refusal


async def test_in_gmail_a_move_to_a_custom_mailbox_is_a_label(services: Services) -> None:
    account = await new_account(services, provider="gmail")
    message_id = await arrive(services, account, mail(), RemoteRef("", "a"))
    await services.store.change_messages([message_id], Change(move_to="Projects"), EVERYTHING)

    message = await services.store.message(message_id, EVERYTHING)
    assert message is not None
    assert (("Projects",), ("Archive",)) == (message.labels, message.mailboxes)


@pytest.mark.parametrize("provider", ["imap", "gmail"])
async def test_changes_of_rules_at_arrival_are_queued_for_the_provider(
    services: Services, provider: str
) -> None:
    account = await new_account(services, provider=provider)
    remote = RemoteMessage(ONE, ("Inbox",), ("flagged",), ("Old",))
    message = await prepare(services, Arrival(mail(), account.inbox_id))
    ruled = replace(message, flags=("flagged", "seen"), labels=("New",), mailboxes=("Projects",))
    (added,) = await services.store.add_remote(account.id, [(ruled, remote)])

    (push,) = await services.store.due_pushes(account.id, services.clock(), 10)
    stored = await services.store.message(added.message_id, EVERYTHING)
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


async def test_mail_without_matching_rules_queues_no_change(services: Services) -> None:
    account = await new_account(services)
    await arrive(services, account, mail(), ONE)

    assert [] == await services.store.due_pushes(account.id, services.clock(), 10)
