"""A mail of an account is one message, in all mailboxes, until it is in none."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.model.account import Pushed, RemoteChanges, RemoteRef
from postroom.model.event import EventQuery
from postroom.model.mail.message import Recipient
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.ingest import Arrival, receive
from postroom.pipeline.services import Services
from tests.mails import SOME, mail
from tests.stores.accounts import ONE, TWO, arrive, new_account
from tests.stores.sends import a_send


async def test_a_mail_in_two_mailboxes_is_one_message(services: Services) -> None:
    account, raw = await new_account(services), mail()
    first = await arrive(services, account, raw, ONE)
    second = await arrive(services, account, raw, TWO, "Archive")

    message = await services.store.message(first, EVERYTHING)
    assert message is not None
    assert (first, {"Inbox", "Archive"}) == (second, set(message.mailboxes))


async def test_a_message_stays_until_it_is_in_no_mailbox(services: Services) -> None:
    account, raw = await new_account(services), mail()
    message_id = await arrive(services, account, raw, ONE)
    await arrive(services, account, raw, TWO, "Archive")
    await services.store.apply_changes(account.id, RemoteChanges({"at": 1}, removed=(ONE,)))
    removed, _ = await services.store.remove_remotely_deleted(account.id, 10)
    message = await services.store.message(message_id, EVERYTHING)

    assert message is not None
    assert (0, ("Archive",)) == (removed, message.mailboxes)
    await services.store.apply_changes(account.id, RemoteChanges({"at": 2}, removed=(TWO,)))
    assert 1 == (await services.store.remove_remotely_deleted(account.id, 10))[0]
    assert await services.store.message(message_id, EVERYTHING) is None
    assert {"at": 2} == await services.store.checkpoint_of(account.id)
    assert not await services.store.problems()


async def test_pending_mail_survives_the_deletion_of_its_remote_copy(
    services: Services,
) -> None:
    account = await new_account(services)
    inbox = await services.store.inbox(account.inbox_id, EVERYTHING)
    assert inbox is not None
    to = (Recipient("ok@example.com", "sent"), Recipient("later@example.com", "queued"))
    send = await a_send(services, inbox)
    sent = await services.store.record_send(
        replace(send, message=replace(send.message, recipients=to))
    )
    (push,) = await services.store.due_pushes(account.id, services.clock(), 10)
    await services.store.settle_push(account.id, push, Pushed(added_refs=((ONE, ("Sent",)),)))
    await services.store.apply_changes(account.id, RemoteChanges({}, removed=(ONE,)))
    early = [(await services.store.remove_remotely_deleted(account.id, 10))[0] for _ in range(2)]
    waiting = await services.store.message(sent.message_id, EVERYTHING)
    now = services.clock()
    lease = {"now": now, "until": now, "free": SOME, "max_per_domain": 9}
    (job,) = (await services.store.claim_mail("worker", **lease)).jobs
    told = {"later@example.com": Recipient("later@example.com", "sent")}
    await services.store.settle_mail(job, told, now=now, next_at=now)
    late = [(await services.store.remove_remotely_deleted(account.id, 10))[0] for _ in range(2)]

    assert ([0, 0], [1, 0]) == (early, late)
    assert waiting is not None
    assert ("later@example.com",) == job.envelope.recipients
    assert await services.store.message(sent.message_id, EVERYTHING) is None
    assert not await services.store.problems()


async def test_a_message_that_was_removed_here_does_not_come_back(services: Services) -> None:
    account = await new_account(services)
    message_id = await arrive(services, account, mail(), ONE)
    await services.store.remove_message(message_id, EVERYTHING)

    assert set() == await services.store.unknown_refs(account.id, [ONE])
    (push,) = await services.store.due_pushes(account.id, services.clock(), 10)
    assert ("delete", ((ONE, ("Inbox",)),)) == (push.kind, push.refs)


async def test_mail_restored_from_the_remote_trash_is_new(services: Services) -> None:
    account = await new_account(services)
    message_id = await arrive(services, account, mail(), ONE)
    await services.store.remove_message(message_id, EVERYTHING)
    (push,) = await services.store.due_pushes(account.id, services.clock(), 10)
    assert set() == await services.store.unknown_refs(account.id, [ONE], untrashed=[ONE])
    await services.store.settle_push(account.id, push, Pushed(added_refs=((ONE, ("Trash",)),)))

    assert set() == await services.store.unknown_refs(account.id, [ONE])
    assert {ONE} == await services.store.unknown_refs(account.id, [ONE], untrashed=[ONE])


PLACES = [RemoteRef(f"{validity}/{box}", "1") for validity in (1, 2) for box in ("INBOX", "Work")]
STEP = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.sampled_from(PLACES)))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEP, min_size=1, max_size=15))
async def test_a_mail_by_any_routes_is_one_message_and_one_event(
    services: Services, steps: list[tuple[int, RemoteRef | None]]
) -> None:
    """By SMTP (without a mailbox), from two mailboxes, and after a change of UIDVALIDITY."""
    account = await new_account(services, f"box{services.new_id('x')[2:10]}")
    ids = ["<0@example.com>", "<1@example.com>", None, None]
    raws = [mail(f"Mail {number}", message_id=own) for number, own in enumerate(ids)]
    for number, place in steps:
        if place is None:
            await receive(services, Arrival(raws[number], account.inbox_id))
        else:
            ref = place._replace(key=str(number))
            await arrive(services, account, raws[number], ref, place.scope.partition("/")[2])
    first = [ref for ref in PLACES if ref.scope.startswith("1/")]
    dropped = RemoteChanges({}, removed_scopes=tuple(ref.scope for ref in first))
    for number in {number for number, _ in steps}:
        await arrive(services, account, raws[number], RemoteRef("2/INBOX", str(number)))
    await services.store.apply_changes(account.id, dropped)
    await services.store.remove_remotely_deleted(account.id, 100)

    found = await services.store.messages(
        MessageQuery(visible=EVERYTHING, inbox_id=account.inbox_id, mailbox="*")
    )
    events = await services.store.events(
        EventQuery(visible=only(account.inbox_id), types=("message.received",))
    )
    assert sorted({f"Mail {n}" for n, _ in steps}) == sorted(row.subject for row in found.rows)
    assert {row.id for row in found.rows} == {event.message_id for event in events.rows}
    assert found.total == events.total
