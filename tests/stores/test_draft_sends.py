"""A draft becomes one mail, and comes back when that is cancelled."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from postroom.errors import Conflict, NotFound
from postroom.model.draft import StoredDraft
from postroom.model.inbox import Inbox
from postroom.model.message import Recipient
from postroom.model.page import Found, Slice
from postroom.model.stored import MessageQuery, NewSend
from postroom.pipeline.house import House
from postroom.store.sql.drafts import list_drafts
from postroom.store.transaction import Row, Transaction
from tests.mails import SOME
from tests.stores.conftest import OpenAgain
from tests.stores.sends import NOW, a_send

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
