"""Sends are recorded exactly once; keys are known by their hash."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from postroom.errors import Conflict, NotFound, RateLimited
from postroom.mail.parse import parse_message
from postroom.model.draft import StoredDraft
from postroom.model.inbox import Inbox
from postroom.model.key import Key
from postroom.model.message import Recipient
from postroom.model.page import Found, Slice
from postroom.model.stored import MessageQuery, NewSend
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, as_sent, put_away
from postroom.store.sql.drafts import list_drafts
from postroom.store.transaction import Row, Transaction
from tests.mails import SOME, mail
from tests.stores.conftest import OpenAgain

NOW = datetime(2026, 6, 1, tzinfo=UTC)


async def a_send(house: House, inbox: Inbox, **changes: object) -> NewSend:
    raw = mail("Sent", sender=inbox.address, to="x@example.com")
    arrival = Arrival(raw, inbox.id)
    async with put_away(house, [(arrival, parse_message(raw))]) as messages:
        message = dataclasses.replace(
            as_sent(messages[0], ["hidden@example.com"]),
            recipients=(Recipient("x@example.com", "captured"),),
            received_at=NOW,
        )
    send = NewSend(
        message=message,
        deliveries=(),
        caller="key_1",
        payload=b"payload",
        idempotency_key=None,
        allow_duplicate=False,
        most_per_hour=None,
    )
    return dataclasses.replace(send, **changes)  # type: ignore[arg-type]


async def test_one_key_is_one_mail_however_many_ask_at_once(house: House, inbox: Inbox) -> None:
    sends = [await a_send(house, inbox, idempotency_key="k") for _ in range(20)]

    answers = await asyncio.gather(*(house.store.record_send(send) for send in sends))

    assert 1 == len({answer.message_id for answer in answers})
    assert 1 == (await house.store.messages(MessageQuery())).total


async def test_a_key_for_another_mail_is_a_conflict(house: House, inbox: Inbox) -> None:
    await house.store.record_send(await a_send(house, inbox, idempotency_key="k"))
    other = await a_send(house, inbox, idempotency_key="k", payload=b"other")

    with pytest.raises(Conflict, match="idempotency key k"):
        await house.store.record_send(other)


async def test_the_same_mail_within_minutes_is_recognised_and_said(
    house: House, inbox: Inbox
) -> None:
    first = await house.store.record_send(await a_send(house, inbox))

    again = await house.store.record_send(await a_send(house, inbox))
    wanted = await house.store.record_send(await a_send(house, inbox, allow_duplicate=True))
    by_other = await house.store.record_send(await a_send(house, inbox, caller="key_2"))

    assert (first.message_id, True) == (again.message_id, again.deduplicated)
    assert 3 == len({first.message_id, wanted.message_id, by_other.message_id})


async def test_a_mail_that_nobody_got_may_be_sent_again(house: House, inbox: Inbox) -> None:
    sends = [await a_send(house, inbox) for _ in range(3)]
    failed = dataclasses.replace(
        sends[0].message, recipients=(Recipient("x@example.com", "failed", "no such inbox"),)
    )

    first = await house.store.record_send(dataclasses.replace(sends[0], message=failed))
    second = await house.store.record_send(sends[1])
    third = await house.store.record_send(sends[2])

    assert (None, True) == (second.deduplicated, third.deduplicated)
    assert first.message_id != second.message_id == third.message_id


async def test_a_repeated_send_says_if_its_message_is_gone(house: House, inbox: Inbox) -> None:
    sends = [await a_send(house, inbox, idempotency_key="k") for _ in range(2)]
    first = await house.store.record_send(sends[0])
    await house.store.remove_message(first.message_id, None)
    again = await house.store.record_send(sends[1])

    assert (first.message_id, ("its copy here was removed since",)) == (
        again.message_id,
        again.warnings,
    )


async def test_after_ten_minutes_the_same_mail_is_a_new_one(house: House, inbox: Inbox) -> None:
    first = await house.store.record_send(await a_send(house, inbox))
    send = await a_send(house, inbox)
    late = dataclasses.replace(send.message, received_at=NOW + timedelta(minutes=11))

    second = await house.store.record_send(dataclasses.replace(send, message=late))

    assert first.message_id != second.message_id


async def test_the_hourly_share_is_exact_and_says_when_to_return(
    house: House, inbox: Inbox
) -> None:
    for number in range(3):
        payload = f"{number}".encode()
        await house.store.record_send(await a_send(house, inbox, payload=payload, most_per_hour=3))

    with pytest.raises(RateLimited) as caught:
        await house.store.record_send(await a_send(house, inbox, payload=b"x", most_per_hour=3))

    assert 3600 == caught.value.retry_after
    assert 3 == (await house.store.messages(MessageQuery())).total


async def test_an_automatic_answer_in_a_thread_is_the_only_one_of_a_day(
    house: House, inbox: Inbox
) -> None:
    root = await house.store.record_send(await a_send(house, inbox, payload=b"root"))

    async def answer(number: int, after: timedelta = timedelta(0)) -> NewSend:
        send = await a_send(house, inbox, payload=f"{number}".encode())
        message = dataclasses.replace(
            send.message,
            internet_message_id=f"{number}@example.com",
            thread_id=root.thread_id,
            auto_answered=("ana@example.com",),
            received_at=NOW + after,
        )
        return dataclasses.replace(send, message=message)

    sends = [await answer(number) for number in range(5)]
    told = await asyncio.gather(*map(house.store.record_send, sends), return_exceptions=True)
    with pytest.raises(Conflict, match="within a day"):
        await house.store.refuse_second_answer(root.thread_id, ["ANA@example.com"], NOW)
    await house.store.refuse_second_answer(root.thread_id, ["bo@example.com"], NOW)
    await house.store.record_send(await answer(5, timedelta(days=1)))

    assert 4 == sum(isinstance(one, Conflict) for one in told)


DRAFT = "drf_1"


async def keep_draft(house: House, inbox: Inbox, draft_id: str = DRAFT) -> StoredDraft:
    """A draft as it is read."""
    draft = StoredDraft(draft_id, inbox.id, {"subject": "x"}, None, NOW, NOW)
    await house.store.save_draft(draft)
    read = await house.store.draft(draft_id, None)
    assert read is not None
    return read


async def a_draft_send(house: House, inbox: Inbox, draft: StoredDraft, caller: str) -> NewSend:
    """The send of a draft to one who waits then."""
    it = {"draft_id": draft.id, "draft_revision": draft.revision, "caller": caller}
    send = await a_send(house, inbox, **it)
    queued = (Recipient("x@example.com", "queued"),)
    message = dataclasses.replace(
        send.message, recipients=queued, internet_message_id=f"{caller}@example.com"
    )
    return dataclasses.replace(send, message=message)


async def test_a_draft_is_one_mail_and_comes_back_when_it_is_cancelled(
    house: House, inbox: Inbox
) -> None:
    draft = await keep_draft(house, inbox)
    waiting = [await a_draft_send(house, inbox, draft, f"key_{n}") for n in range(5)]
    told = await asyncio.gather(*map(house.store.record_send, waiting))
    sent = await house.store.draft(DRAFT, None)
    with pytest.raises(NotFound, match=told[0].message_id):
        await house.store.save_draft(draft)
    await house.store.cancel_mail(told[0].message_id, None, NOW)
    back = await house.store.draft(DRAFT, None)

    assert sent is not None
    assert back is not None
    assert {sent.message_id} == {one.message_id for one in told}
    assert (None, {"subject": "x"}) == (back.message_id, back.arguments)


async def test_a_cancelled_mail_that_is_retried_is_its_draft_sent(
    house: House, inbox: Inbox
) -> None:
    draft = await keep_draft(house, inbox)
    first = await house.store.record_send(await a_draft_send(house, inbox, draft, "key_1"))
    await house.store.cancel_mail(first.message_id, None, NOW)
    back = await house.store.draft(DRAFT, None)
    assert back is not None
    await house.store.retry_mail(first.message_id, None, NOW)
    again = await house.store.record_send(await a_draft_send(house, inbox, back, "key_2"))
    await house.store.cancel_mail(first.message_id, None, NOW)
    last = await house.store.draft(DRAFT, None)

    assert last is not None
    assert (first.message_id, None) == (again.message_id, last.message_id)
    assert 1 == (await house.store.messages(MessageQuery())).total


async def test_a_cancelled_mail_is_not_retried_beside_its_draft(house: House, inbox: Inbox) -> None:
    draft = await keep_draft(house, inbox)
    first = await house.store.record_send(await a_draft_send(house, inbox, draft, "key_1"))
    await house.store.cancel_mail(first.message_id, None, NOW)
    back = await house.store.draft(DRAFT, None)
    assert back is not None
    await house.store.save_draft(dataclasses.replace(back, arguments={"subject": "y"}))
    with pytest.raises(Conflict, match=f"{DRAFT} was changed since; send_draft"):
        await house.store.retry_mail(first.message_id, None, NOW)
    changed = await house.store.draft(DRAFT, None)
    assert changed is not None
    second = await house.store.record_send(await a_draft_send(house, inbox, changed, "key_2"))
    with pytest.raises(Conflict, match=f"{DRAFT} was sent as {second.message_id} since"):
        await house.store.retry_mail(first.message_id, None, NOW)
    await house.store.cancel_mail(second.message_id, None, NOW)
    with pytest.raises(Conflict, match="send_draft"):
        await house.store.retry_mail(first.message_id, None, NOW)
    assert await house.store.remove_draft(DRAFT, None)
    await house.store.retry_mail(first.message_id, None, NOW)

    message = await house.store.message(first.message_id, None)
    assert message is not None
    assert "queued" == message.status


async def test_a_draft_is_changed_and_sent_only_as_it_was_read(house: House, inbox: Inbox) -> None:
    draft = await keep_draft(house, inbox)
    changes = [dataclasses.replace(draft, arguments={"subject": f"{n}"}) for n in range(5)]
    told = await asyncio.gather(*map(house.store.save_draft, changes), return_exceptions=True)
    with pytest.raises(Conflict, match="read it again"):
        await house.store.record_send(await a_draft_send(house, inbox, draft, "key_1"))
    changed = await house.store.draft(DRAFT, None)
    assert changed is not None
    await house.store.remove_draft(DRAFT, None)
    with pytest.raises(NotFound):
        await house.store.save_draft(changed)

    assert 4 == sum(isinstance(one, Conflict) for one in told)
    assert {"subject": f"{told.index(None)}"} == changed.arguments
    assert await house.store.draft(DRAFT, None) is None
    assert 0 == (await house.store.messages(MessageQuery())).total


class Counting:
    """A transaction that counts the rows it returns."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.rows = 0

    def all(self, sql: str, /, **params: object) -> list[Row]:
        found = self.tx.all(sql, **params)
        self.rows += len(found)
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self.tx, name)


async def test_drafts_are_counted_and_only_those_shown_are_read(
    house: House, inbox: Inbox, open_again: OpenAgain
) -> None:
    for number in range(7):
        await keep_draft(house, inbox, f"drf_{number}")
    store = await open_again()
    read: list[int] = []

    def listed(tx: Transaction, page: Slice) -> Found[StoredDraft]:
        counting = Counting(tx)
        found = list_drafts(counting, None, inbox.id, page)  # type: ignore[arg-type]
        read.append(counting.rows)
        return found

    first = await store._engine.read(lambda tx: listed(tx, Slice(2, 1)))
    second = await store._engine.read(lambda tx: listed(tx, Slice(3, after=first.next)))
    last = await store._engine.read(lambda tx: listed(tx, Slice(3, after=second.next)))
    beyond = await store._engine.read(lambda tx: listed(tx, Slice(3, 9)))
    await store.close()

    pages = [first, second, last, beyond]
    assert [[5, 4], [3, 2, 1], [0], []] == [[int(d.id[4:]) for d in p.rows] for p in pages]
    assert [(7, 1), (7, 3), (7, 6), (7, 9)] == [(p.total, p.offset) for p in pages]
    assert ([2, 3, 1, 0], None, None) == (read, last.next, beyond.next)


async def test_who_was_unknown_is_unknown_again_when_the_retry_is_cancelled(
    house: House, inbox: Inbox
) -> None:
    draft = await keep_draft(house, inbox)
    sent = await house.store.record_send(await a_draft_send(house, inbox, draft, "key_1"))
    lease = {"now": NOW, "until": NOW, "free": SOME, "most_per_domain": 9}
    (job,) = (await house.store.claim_mail("worker", **lease)).jobs
    lost = Recipient("x@example.com", "unknown", "who knows")
    await house.store.settle_mail(job, {lost.address: lost}, now=NOW, next_at=NOW)
    for _ in range(2):
        await house.store.retry_mail(sent.message_id, None, NOW)
    await house.store.cancel_mail(sent.message_id, None, NOW)
    message = await house.store.message(sent.message_id, None)
    after = await house.store.draft(DRAFT, None)

    assert message is not None
    assert after is not None
    assert ((lost,), sent.message_id) == (message.recipients, after.message_id)


async def test_who_has_no_relay_is_given_nothing_that_needs_one(house: House, inbox: Inbox) -> None:
    send = await a_send(house, inbox)
    queued = (Recipient("x@example.com", "queued"),)
    message = dataclasses.replace(send.message, recipients=queued)
    await house.store.record_send(dataclasses.replace(send, message=message))
    lease = {"now": NOW, "until": NOW + timedelta(minutes=1), "free": SOME, "most_per_domain": 9}

    assert await house.store.next_mail_at(["house", "account"]) is None
    poor = {**lease, "free": {"house": 5, "account": 5}}
    assert () == (await house.store.claim_mail("poor", **poor)).jobs
    assert NOW == await house.store.next_mail_at(["relay"])
    assert 1 == len((await house.store.claim_mail("rich", **lease)).jobs)


async def test_the_senders_copy_alone_knows_the_bcc(house: House, inbox: Inbox) -> None:
    sent = await house.store.record_send(await a_send(house, inbox))

    message = await house.store.message(sent.message_id, None)

    assert message is not None
    assert ("hidden@example.com",) == message.bcc_addresses
    assert ("captured", ("Sent",)) == (message.status, message.mailboxes)


async def test_keys_are_found_by_hash_listed_and_revoked(house: House) -> None:
    key = Key("key_1", "crm", ("read",), ("inb_1",), None, None, NOW, None)
    await house.store.add_key(key, b"hash-1")

    found = await house.store.key_of(b"hash-1", NOW)
    listed = await house.store.keys(Slice())

    assert key == found
    assert NOW == listed.rows[0].last_used_at
    assert await house.store.key_of(b"hash-2", NOW) is None
    assert (True, False) == (
        await house.store.remove_key("key_1"),
        await house.store.remove_key("key_1"),
    )
    assert await house.store.key_of(b"hash-1", NOW) is None


async def test_of_those_who_make_a_first_key_at_once_one_is_told_that_it_is_kept(
    house: House, open_again: OpenAgain
) -> None:
    key = Key("owner", "owner", ("read",), None, None, None, NOW, None)
    others = [await open_again() for _ in range(3)]

    kept = await asyncio.gather(
        *(store.add_key(key, bytes([n]), replaces=False) for n, store in enumerate(others))
    )

    assert [True] == [one for one in kept if one]
    assert await house.store.key_of(bytes([kept.index(True)]), NOW) is not None
    for store in others:
        await store.close()


async def test_a_key_with_the_same_id_gets_the_new_secret(house: House) -> None:
    key = Key("owner", "owner", ("read",), None, None, None, NOW, None)
    await house.store.add_key(key, b"old")
    await house.store.add_key(key, b"new")

    assert await house.store.key_of(b"old", NOW) is None
    assert await house.store.has_key("owner")
    assert await house.store.key_of(b"new", NOW) is not None
