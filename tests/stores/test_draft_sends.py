"""A draft becomes one mail, and is restored when that is cancelled."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from postroom.errors import Conflict, NotFound
from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import EarlierMail, StoredDraft
from postroom.model.mail.storage import Gate, MessageQuery, NewSend
from postroom.model.page import Found, Slice
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.store.sql.outbox.drafts import list_drafts
from postroom.store.sql.statements import inbox_number
from postroom.store.transaction import Row, Transaction
from tests.mails import SOME
from tests.stores.conftest import OpenAgain
from tests.stores.sends import NOW, a_send

DRAFT = "drf_1"
SPARE = StoredDraft("drf_2", "", {"subject": "Sent"}, None, NOW, NOW)
"""The draft of a mail that was not a draft."""


async def keep_draft(services: Services, inbox: Inbox, draft_id: str = DRAFT) -> StoredDraft:
    """A draft as it is read."""
    draft = StoredDraft(draft_id, inbox.id, {"subject": "x"}, None, NOW, NOW)
    await services.store.save_draft(draft)
    read = await services.store.draft(draft_id, EVERYTHING)
    assert read is not None
    return read


async def a_draft_send(
    services: Services, inbox: Inbox, draft: StoredDraft, caller: str
) -> NewSend:
    """The send of a draft by a caller who waits for it."""
    it = {"draft_id": draft.id, "draft_revision": draft.revision, "caller": caller}
    send = await a_send(services, inbox, **it)
    queued = (Recipient("x@example.com", "queued"),)
    message = dataclasses.replace(
        send.message, recipients=queued, internet_message_id=f"{caller}@example.com"
    )
    return dataclasses.replace(send, message=message)


async def test_a_sent_draft_is_restored_when_its_mail_is_cancelled(
    services: Services, inbox: Inbox
) -> None:
    draft = await keep_draft(services, inbox)
    waiting = [await a_draft_send(services, inbox, draft, f"key_{n}") for n in range(5)]
    told = await asyncio.gather(*map(services.store.record_send, waiting))
    sent = await services.store.draft(DRAFT, EVERYTHING)
    with pytest.raises(NotFound, match=told[0].message_id):
        await services.store.save_draft(draft)
    await services.store.cancel_mail(told[0].message_id, EVERYTHING, SPARE, NOW)
    back = await services.store.draft(DRAFT, EVERYTHING)

    assert sent is not None
    assert back is not None
    assert {sent.message_id} == {one.message_id for one in told}
    assert (None, {"subject": "x"}) == (back.message_id, back.arguments)


async def test_a_cancelled_mail_is_gone_and_cannot_be_retried(
    services: Services, inbox: Inbox
) -> None:
    draft = await keep_draft(services, inbox)
    first = await services.store.record_send(await a_draft_send(services, inbox, draft, "key_1"))
    cancelled = await services.store.cancel_mail(first.message_id, EVERYTHING, SPARE, NOW)
    with pytest.raises(NotFound, match=first.message_id):
        await services.store.retry_mail(
            first.message_id,
            EVERYTHING,
            NOW,
            authors=("owner",),
            external_recipients=(),
            gate=Gate(),
        )

    assert DRAFT == cancelled.draft_id
    assert await services.store.draft(SPARE.id, EVERYTHING) is None
    everywhere = MessageQuery(visible=EVERYTHING, mailbox="*")
    assert 0 == (await services.store.messages(everywhere)).total


async def test_a_mail_that_was_no_draft_becomes_one_when_it_is_cancelled(
    services: Services, inbox: Inbox
) -> None:
    send = await a_send(services, inbox)
    queued = dataclasses.replace(send.message, recipients=(Recipient("x@example.com", "queued"),))
    first = await services.store.record_send(dataclasses.replace(send, message=queued))
    spare = dataclasses.replace(SPARE, inbox_id=inbox.id)
    cancelled = await services.store.cancel_mail(first.message_id, EVERYTHING, spare, NOW)
    made = await services.store.draft(SPARE.id, EVERYTHING)

    assert made is not None
    assert (SPARE.id, SPARE.arguments) == (cancelled.draft_id, made.arguments)


async def test_mail_cancelled_by_an_earlier_version_is_not_retried(
    services: Services, inbox: Inbox
) -> None:
    """That version kept the message, and named the draft in the outbox."""
    draft = await keep_draft(services, inbox)
    send = await a_send(services, inbox)
    lost = dataclasses.replace(send.message, recipients=(Recipient("x@example.com", "failed"),))
    first = await services.store.record_send(dataclasses.replace(send, message=lost))
    named = {"draft": DRAFT, "revision": draft.revision}
    sql = "UPDATE outbox SET draft_id = :draft, draft_revision = :revision WHERE inbox = :inbox"
    await services.store.engine.write(
        lambda tx: tx.put(sql, **named, inbox=inbox_number(tx, inbox.id))
    )
    await services.store.save_draft(dataclasses.replace(draft, arguments={"subject": "y"}))
    with pytest.raises(Conflict, match=f"{DRAFT} was changed since; send_draft"):
        await services.store.retry_mail(
            first.message_id,
            EVERYTHING,
            NOW,
            authors=("owner",),
            external_recipients=(),
            gate=Gate(),
        )
    assert await services.store.remove_draft(DRAFT, EVERYTHING)
    await services.store.retry_mail(
        first.message_id, EVERYTHING, NOW, authors=("owner",), external_recipients=(), gate=Gate()
    )

    message = await services.store.message(first.message_id, EVERYTHING)
    assert message is not None
    assert ("queued", ("Outbox",)) == (message.status, message.mailboxes)


async def test_a_draft_is_changed_and_sent_only_as_it_was_read(
    services: Services, inbox: Inbox
) -> None:
    draft = await keep_draft(services, inbox)
    changes = [dataclasses.replace(draft, arguments={"subject": f"{n}"}) for n in range(5)]
    told = await asyncio.gather(*map(services.store.save_draft, changes), return_exceptions=True)
    with pytest.raises(Conflict, match="read it again"):
        await services.store.record_send(await a_draft_send(services, inbox, draft, "key_1"))
    changed = await services.store.draft(DRAFT, EVERYTHING)
    assert changed is not None
    await services.store.remove_draft(DRAFT, EVERYTHING)
    with pytest.raises(NotFound):
        await services.store.save_draft(changed)

    assert 4 == sum(isinstance(one, Conflict) for one in told)
    assert {"subject": f"{told.index(None)}"} == changed.arguments
    assert await services.store.draft(DRAFT, EVERYTHING) is None
    assert 0 == (await services.store.messages(MessageQuery(visible=EVERYTHING))).total


class RowCounter:
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
    services: Services, inbox: Inbox, open_again: OpenAgain
) -> None:
    for number in range(7):
        await keep_draft(services, inbox, f"drf_{number}")
    store = await open_again()
    read: list[int] = []

    def listed(tx: Transaction, page: Slice) -> Found[StoredDraft]:
        counting = RowCounter(tx)
        found = list_drafts(counting, EVERYTHING, inbox.id, page)  # type: ignore[arg-type]
        read.append(counting.rows)
        return found

    first = await store.engine.read(lambda tx: listed(tx, Slice(2, 1)))
    second = await store.engine.read(lambda tx: listed(tx, Slice(3, after=first.next)))
    last = await store.engine.read(lambda tx: listed(tx, Slice(3, after=second.next)))
    beyond = await store.engine.read(lambda tx: listed(tx, Slice(3, 9)))
    await store.close()

    pages = [first, second, last, beyond]
    assert [[5, 4], [3, 2, 1], [0], []] == [[int(d.id[4:]) for d in p.rows] for p in pages]
    assert [(7, 1), (7, 3), (7, 6), (7, 9)] == [(p.total, p.offset) for p in pages]
    assert ([2, 3, 1, 0], None, None) == (read, last.next, beyond.next)


async def test_cancelling_a_retry_restores_the_status_unknown(
    services: Services, inbox: Inbox
) -> None:
    draft = await keep_draft(services, inbox)
    sent = await services.store.record_send(await a_draft_send(services, inbox, draft, "key_1"))
    lease = {"now": NOW, "until": NOW, "free": SOME, "max_per_domain": 9}
    (job,) = (await services.store.claim_mail("worker", **lease)).jobs
    lost = Recipient("x@example.com", "unknown", "who knows")
    await services.store.settle_mail(job, {lost.address: lost}, now=NOW, next_at=NOW)
    for _ in range(2):
        await services.store.retry_mail(
            sent.message_id,
            EVERYTHING,
            NOW,
            authors=("owner",),
            external_recipients=(),
            gate=Gate(),
        )
    await services.store.cancel_mail(sent.message_id, EVERYTHING, SPARE, NOW)
    message = await services.store.message(sent.message_id, EVERYTHING)
    after = await services.store.draft(DRAFT, EVERYTHING)

    assert message is not None
    assert after is not None
    assert ((lost,), sent.message_id) == (message.recipients, after.message_id)


async def test_a_mail_sent_again_from_its_draft_says_what_it_replaces(
    services: Services, inbox: Inbox
) -> None:
    earlier = EarlierMail("msg_1", ("x@example.com",), "Sent", "Ten.", ("a.txt",), "Two.")
    draft = await keep_draft(services, inbox)
    first = await services.store.record_send(await a_draft_send(services, inbox, draft, "key_1"))
    spare = dataclasses.replace(SPARE, replaces=earlier)
    await services.store.cancel_mail(first.message_id, EVERYTHING, spare, NOW)
    back = await services.store.draft(DRAFT, EVERYTHING)
    assert back is not None
    again = await services.store.record_send(await a_draft_send(services, inbox, back, "key_2"))

    facts = await services.store.held_mail_facts(again.message_id, inbox.id, ["New@Example.com"])

    assert (earlier, ("New@Example.com",)) == (facts.replaces, facts.new_recipients)


async def test_known_contacts_are_found_by_their_beginning(
    services: Services, inbox: Inbox
) -> None:
    send = await a_send(services, inbox)
    reached = (Recipient("Ana@example.com", "sent"), Recipient("bo@example.com", "failed"))
    message = dataclasses.replace(send.message, recipients=reached)
    await services.store.record_send(dataclasses.replace(send, message=message))

    assert ("ana@example.com",) == await services.store.contacts(inbox.id, "An", 8)
    assert () == await services.store.contacts(inbox.id, "b", 8)
    assert () == await services.store.contacts("inb_no", "an", 8)
