"""Mail of an account is one message, wherever its provider has it, until it is nowhere."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.model.event import EventQuery
from postroom.model.message import Recipient
from postroom.model.remote import Pushed, RemoteChanges, RemoteRef
from postroom.model.stored import MessageQuery
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, receive
from tests.mails import SOME, mail
from tests.stores.accounts import ONE, TWO, arrive, new_account
from tests.stores.sends import a_send


async def test_a_mail_in_two_mailboxes_is_one_message(house: House) -> None:
    account, raw = await new_account(house), mail()
    first = await arrive(house, account, raw, ONE)
    second = await arrive(house, account, raw, TWO, "Archive")

    message = await house.store.message(first, None)
    assert message is not None
    assert (first, {"Inbox", "Archive"}) == (second, set(message.mailboxes))


async def test_a_message_stays_until_it_is_nowhere(house: House) -> None:
    account, raw = await new_account(house), mail()
    message_id = await arrive(house, account, raw, ONE)
    await arrive(house, account, raw, TWO, "Archive")
    await house.store.apply_changes(account.id, RemoteChanges({"at": 1}, gone=(ONE,)))
    removed, _ = await house.store.sweep_gone(account.id, 10)
    message = await house.store.message(message_id, None)

    assert message is not None
    assert (0, ("Archive",)) == (removed, message.mailboxes)
    await house.store.apply_changes(account.id, RemoteChanges({"at": 2}, gone=(TWO,)))
    assert 1 == (await house.store.sweep_gone(account.id, 10))[0]
    assert await house.store.message(message_id, None) is None
    assert {"at": 2} == await house.store.checkpoint_of(account.id)
    assert not await house.store.problems()


async def test_a_mail_that_still_waits_to_be_sent_outlives_its_copy_at_the_provider(
    house: House,
) -> None:
    account = await new_account(house)
    inbox = await house.store.inbox(account.inbox_id, None)
    assert inbox is not None
    to = (Recipient("ok@example.com", "sent"), Recipient("later@example.com", "queued"))
    send = await a_send(house, inbox)
    sent = await house.store.record_send(
        replace(send, message=replace(send.message, recipients=to))
    )
    (push,) = await house.store.due_pushes(account.id, house.clock(), 10)
    await house.store.settle_push(account.id, push, Pushed(entered=((ONE, ("Sent",)),)))
    await house.store.apply_changes(account.id, RemoteChanges({}, gone=(ONE,)))
    early = [(await house.store.sweep_gone(account.id, 10))[0] for _ in range(2)]
    waiting = await house.store.message(sent.message_id, None)
    now = house.clock()
    lease = {"now": now, "until": now, "free": SOME, "most_per_domain": 9}
    (job,) = (await house.store.claim_mail("worker", **lease)).jobs
    told = {"later@example.com": Recipient("later@example.com", "sent")}
    await house.store.settle_mail(job, told, now=now, next_at=now)
    late = [(await house.store.sweep_gone(account.id, 10))[0] for _ in range(2)]

    assert ([0, 0], [1, 0]) == (early, late)
    assert waiting is not None
    assert ("later@example.com",) == job.envelope.recipients
    assert await house.store.message(sent.message_id, None) is None
    assert not await house.store.problems()


async def test_a_message_that_was_removed_here_does_not_come_back(house: House) -> None:
    account = await new_account(house)
    message_id = await arrive(house, account, mail(), ONE)
    await house.store.remove_message(message_id, None)

    assert set() == await house.store.unknown_refs(account.id, [ONE])
    (push,) = await house.store.due_pushes(account.id, house.clock(), 10)
    assert ("delete", ((ONE, ("Inbox",)),)) == (push.kind, push.refs)


async def test_what_went_to_trash_there_is_unknown_once_it_is_taken_out(house: House) -> None:
    account = await new_account(house)
    message_id = await arrive(house, account, mail(), ONE)
    await house.store.remove_message(message_id, None)
    (push,) = await house.store.due_pushes(account.id, house.clock(), 10)
    assert set() == await house.store.unknown_refs(account.id, [ONE], untrashed=[ONE])
    await house.store.settle_push(account.id, push, Pushed(entered=((ONE, ("Trash",)),)))

    assert set() == await house.store.unknown_refs(account.id, [ONE])
    assert {ONE} == await house.store.unknown_refs(account.id, [ONE], untrashed=[ONE])


PLACES = [RemoteRef(f"{validity}/{box}", "1") for validity in (1, 2) for box in ("INBOX", "Work")]
STEP = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.sampled_from(PLACES)))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEP, min_size=1, max_size=15))
async def test_a_mail_by_any_routes_is_one_message_and_one_event(
    house: House, steps: list[tuple[int, RemoteRef | None]]
) -> None:
    """By SMTP (no place), from two mailboxes, and after another UIDVALIDITY."""
    account = await new_account(house, f"box{house.new_id('x')[2:10]}")
    ids = ["<0@example.com>", "<1@example.com>", None, None]
    raws = [mail(f"Mail {number}", message_id=own) for number, own in enumerate(ids)]
    for number, place in steps:
        if place is None:
            await receive(house, Arrival(raws[number], account.inbox_id))
        else:
            ref = place._replace(key=str(number))
            await arrive(house, account, raws[number], ref, place.scope.partition("/")[2])
    first = [ref for ref in PLACES if ref.scope.startswith("1/")]
    dropped = RemoteChanges({}, dropped=tuple(ref.scope for ref in first))
    for number in {number for number, _ in steps}:
        await arrive(house, account, raws[number], RemoteRef("2/INBOX", str(number)))
    await house.store.apply_changes(account.id, dropped)
    await house.store.sweep_gone(account.id, 100)

    found = await house.store.messages(MessageQuery(inbox_id=account.inbox_id, mailbox="*"))
    events = await house.store.events(
        EventQuery(visible=frozenset({account.inbox_id}), types=("message.received",))
    )
    assert sorted({f"Mail {n}" for n, _ in steps}) == sorted(row.subject for row in found.rows)
    assert {row.id for row in found.rows} == {event.message_id for event in events.rows}
    assert found.total == events.total
