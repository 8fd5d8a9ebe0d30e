"""Accounts in the store: places of messages, changes on their way, identities."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.errors import Conflict, NotFound
from postroom.model.account import Account, Identity, RefusedChange
from postroom.model.event import EventQuery
from postroom.model.message import Recipient
from postroom.model.page import Slice
from postroom.model.remote import Pushed, Refusal, RemoteChanges, RemoteMessage, RemoteRef
from postroom.model.stored import Change, MessageQuery
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, put_away, receive
from postroom.store.sql.outbox_claims import PER_ACCOUNT
from tests.mails import SOME, mail, new_inbox
from tests.stores.test_sends import a_send


async def new_account(house: House, name: str = "work", provider: str = "imap") -> Account:
    account = Account(
        name,
        provider,  # type: ignore[arg-type]
        f"{name}@example.com",
        house.new_id("inb"),
        "new",
        "",
        0,
        None,
        None,
        house.clock().replace(microsecond=0),
        {"host": "imap.example.com"},
    )
    await house.store.add_account(account, "Ana")
    return account


async def arrive(
    house: House, account: Account, raw: bytes, ref: RemoteRef, mailbox: str = "Inbox"
) -> str:
    """Let a mail come from the provider; the id of the message."""
    remote = RemoteMessage(ref, (mailbox,), (), ())
    (parsed,) = await house.parser.parse([raw])
    async with put_away(house, [(Arrival(raw, account.inbox_id), parsed)]) as (message,):
        pair = (replace(message, mailboxes=(mailbox,)), remote)
        (added,) = await house.store.add_remote(account.id, [pair])
    return added.message_id


ONE, TWO = RemoteRef("1/INBOX", "1"), RemoteRef("1/Archive", "7")


async def test_an_account_has_one_inbox_and_one_name(house: House) -> None:
    account = await new_account(house)

    found = await house.store.inbox(account.inbox_id, None)
    assert found is not None
    assert ("work@example.com", "work") == (found.address, found.account_id)
    with pytest.raises(Conflict):
        await new_account(house)


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


async def test_an_account_goes_with_everything_of_it(house: House) -> None:
    account = await new_account(house)
    message_id = await arrive(house, account, mail(), ONE)
    await house.store.change_messages([message_id], Change(flags=("seen",)), None)
    await house.store.remove_inbox(account.inbox_id, None, force=True)

    assert await house.store.account(account.id, None) is None
    with pytest.raises(NotFound):
        await house.store.unknown_refs(account.id, [ONE])
    assert 0 == (await house.store.accounts(None, Slice())).total
    assert not await house.store.problems()


async def test_an_alias_receives_and_is_taken(house: House) -> None:
    inbox = await new_inbox(house)
    alias = Identity("idn_1", "sales@postroom.localhost", "Sales", "", inbox.id, None, False)
    await house.store.add_identity(alias)

    found = await house.store.inboxes_at(["SALES@postroom.localhost"])
    assert inbox.id == found["sales@postroom.localhost"].id
    with pytest.raises(Conflict):
        await new_inbox(house, "sales")
    changed = await house.store.change_identity(
        "idn_1", None, name=None, signature=None, is_default=True
    )
    assert changed is not None
    default = await house.store.default_identity(inbox.id)
    assert default is not None
    assert "idn_1" == default.id


async def test_an_account_that_hangs_leaves_places_to_others(house: House) -> None:
    senders = {}
    for name in ("slow", "quick"):
        account = await new_account(house, name)
        inbox = await house.store.inbox(account.inbox_id, None)
        assert inbox is not None
        for number in range(PER_ACCOUNT + 1):
            send = await a_send(house, inbox, payload=f"{name} {number}".encode())
            queued = (Recipient("x@example.com", "queued"),)
            its = replace(send.message, recipients=queued)
            sent = await house.store.record_send(replace(send, message=its))
            senders[sent.message_id] = name
    now = house.clock() + timedelta(days=99)
    lease = {"now": now, "until": now + timedelta(minutes=1), "most_per_domain": 99}
    few = {**lease, "free": {"account": PER_ACCOUNT + 1}}
    first = (await house.store.claim_mail("worker", **few)).jobs
    then = (await house.store.claim_mail("worker", **few, active=first)).jobs

    assert ["slow"] * PER_ACCOUNT == [senders[job.message_id] for job in first]
    assert ["quick"] * PER_ACCOUNT == [senders[job.message_id] for job in then]


async def test_addresses_follow_what_their_provider_tells_of_them(house: House) -> None:
    inbox = (await new_account(house)).inbox_id

    def there(key: str, name: str, signature: str = "") -> Identity:
        return Identity(f"idn_{key}", f"{key}@example.com", name, signature, inbox, "work", False)

    async def here() -> dict[str, tuple[str, str, bool]]:
        rows = (await house.store.identities(None, inbox, Slice())).rows
        return {
            row.email.partition("@")[0]: (row.name, row.signature, row.is_default) for row in rows
        }

    await house.store.add_identity(there("alias", "Ours"))
    await house.store.keep_identities(inbox, [there("sales", "Sales", "v1"), there("help", "Help")])
    changed = {"name": "Help desk", "signature": None, "is_default": True}
    await house.store.change_identity("idn_help", None, **changed)
    await house.store.keep_identities(
        inbox, [there("sales", "Sales team", "v2"), there("help", "Support", "v2")]
    )
    found = await here()
    assert ("Sales team", "v2", False) == found["sales"]
    assert ("Help desk", "v2", True) == found["help"]

    await house.store.keep_identities(inbox, [there("sales", "Sales team", "v2")])
    assert {"work", "alias", "sales"} == set(await here())
    assert (await here())["work"][2]
    assert await house.store.identity_at("help@example.com") is None
    assert not await house.store.problems()


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


async def test_a_house_with_accounts_is_found_in_order(house: House) -> None:
    account = await new_account(house)
    first = await arrive(house, account, mail(), ONE)
    second = await arrive(house, account, mail("Other"), TWO, "Archive")
    await house.store.change_messages([first], Change(flags=("seen",)), None)
    await house.store.remove_message(second, None)

    assert () == await house.store.problems()
    await house.store.remove_inbox(account.inbox_id, None, force=True)
    assert () == await house.store.problems()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE accounts SET inbox = 999", "account work feeds no inbox"),
        ("DELETE FROM accounts", "is fed by an account that does not exist"),
        ("UPDATE remotes SET account = 999", "belongs to no account"),
        ("UPDATE remotes SET message = 999", "holds message number 999"),
        ("UPDATE pushes SET account = 999", "waits for an account that does not exist"),
        ("UPDATE pushes SET message = 999", "and its message does not exist"),
        ("UPDATE identities SET inbox = 999", "the address work@example.com belongs to no inbox"),
        ("DELETE FROM identities", "has no address to send from"),
    ],
)
async def test_what_is_amiss_with_an_account_is_found(
    house: House, damage: str, found: str
) -> None:
    account = await new_account(house)
    message_id = await arrive(house, account, mail(), ONE)
    await house.store.change_messages([message_id], Change(flags=("seen",)), None)
    engine = house.store._engine  # type: ignore[attr-defined]
    await engine.write(lambda tx: tx.run(damage))

    assert any(found in problem for problem in await house.store.problems())


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
