"""Inboxes are stored, found, renamed and removed."""

from __future__ import annotations

import dataclasses

import pytest

from postroom.errors import Conflict
from postroom.model.inbox import Inbox
from postroom.model.mail.approval import InboxPolicy, SenderLists
from postroom.model.mail.storage import MessageQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.services import Services
from tests.mails import deliver, mail, new_inbox


async def test_an_inbox_is_found_by_id_and_by_address_without_case(services: Services) -> None:
    inbox = await new_inbox(services, "bo")

    found = await services.store.inboxes_at(["BO@Postroom.localhost", "nobody@postroom.localhost"])

    assert {"bo@postroom.localhost": await services.store.inbox(inbox.id, EVERYTHING)} == found


async def test_a_taken_address_is_a_conflict(services: Services, inbox: Inbox) -> None:
    with pytest.raises(Conflict, match="taken"):
        await new_inbox(services, "bo")


async def test_the_same_client_id_and_payload_give_the_same_inbox(services: Services) -> None:
    first = Inbox("inb_1", "a@postroom.localhost", "", None, services.clock())
    second = dataclasses.replace(first, id="inb_2", address="b@postroom.localhost")

    made = await services.store.add_inbox(first, client_id="agent-7", payload=b"x")
    again = await services.store.add_inbox(second, client_id="agent-7", payload=b"x")

    assert made.id == again.id
    with pytest.raises(Conflict, match="agent-7"):
        await services.store.add_inbox(second, client_id="agent-7", payload=b"y")


async def test_a_caller_sees_only_its_inboxes(services: Services) -> None:
    mine, other = await new_inbox(services, "mine"), await new_inbox(services, "other")
    visible = only(mine.id)

    found = await services.store.inboxes(visible, Slice())

    assert [mine.id] == [inbox.id for inbox in found.rows]
    assert 1 == found.total
    assert await services.store.inbox(other.id, visible) is None
    assert await services.store.rename_inbox(other.id, "x", visible) is None
    assert await services.store.remove_inbox(other.id, visible, force=True) is None


async def test_pages_of_inboxes_follow_each_other(services: Services) -> None:
    ids = [(await new_inbox(services, f"box{number}")).id for number in range(5)]

    first = await services.store.inboxes(EVERYTHING, Slice(limit=2))
    await new_inbox(services, "late")
    second = await services.store.inboxes(EVERYTHING, Slice(limit=2, after=first.next))
    skipped = await services.store.inboxes(EVERYTHING, Slice(limit=2, offset=4))

    assert ids[:2] == [inbox.id for inbox in first.rows]
    assert ids[2:4] == [inbox.id for inbox in second.rows]
    assert (6, 2) == (second.total, second.offset)
    assert (ids[4], None) == (skipped.rows[0].id, skipped.next)


async def test_an_inbox_with_mail_needs_force_and_takes_everything_along(
    services: Services, inbox: Inbox
) -> None:
    kept = await new_inbox(services, "kept")
    shared = mail("Both", attachments=[("a.txt", "text/plain", b"shared")])
    await deliver(services, inbox, shared)
    await deliver(services, kept, shared)
    own = await deliver(services, inbox, mail("Only here"))
    raw = await services.store.message(own.message_id, EVERYTHING)
    assert raw is not None

    with pytest.raises(Conflict, match="force"):
        await services.store.remove_inbox(inbox.id, EVERYTHING, force=False)
    unused = await services.store.remove_inbox(inbox.id, EVERYTHING, force=True)

    assert (raw.raw,) == unused
    assert await services.store.inbox(inbox.id, EVERYTHING) is None
    assert 1 == (await services.store.messages(MessageQuery(visible=EVERYTHING))).total
    assert () == await services.store.problems()


async def test_only_the_sender_lists_of_the_asked_inboxes_are_read(services: Services) -> None:
    inboxes = [await new_inbox(services, f"box{number}") for number in range(4)]
    for number, inbox in enumerate(inboxes[:3]):
        lists = SenderLists(block=(f"{number}@example.com",))
        await services.store.set_inbox_policy(inbox.id, InboxPolicy(senders=lists))

    found = await services.store.sender_lists([inbox.id for inbox in inboxes[1:]])

    assert {inbox.id for inbox in inboxes[1:3]} == found.keys()
    assert ("1@example.com",) == found[inboxes[1].id].block
    assert {} == await services.store.sender_lists([])
