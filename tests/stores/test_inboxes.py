"""Inboxes: kept, found, renamed, removed."""

from __future__ import annotations

import dataclasses

import pytest

from postroom.errors import Conflict
from postroom.model.inbox import Inbox
from postroom.model.page import Slice
from postroom.model.stored import MessageQuery
from postroom.pipeline.house import House
from tests.mails import deliver, mail, new_inbox


async def test_an_inbox_is_found_by_id_and_by_address_without_case(house: House) -> None:
    inbox = await new_inbox(house, "bo")

    found = await house.store.inboxes_at(["BO@Postroom.localhost", "nobody@postroom.localhost"])

    assert {"bo@postroom.localhost": await house.store.inbox(inbox.id, None)} == found


async def test_a_taken_address_is_a_conflict(house: House, inbox: Inbox) -> None:
    with pytest.raises(Conflict, match="taken"):
        await new_inbox(house, "bo")


async def test_the_same_client_id_and_payload_give_the_same_inbox(house: House) -> None:
    first = Inbox("inb_1", "a@postroom.localhost", "", None, house.clock())
    second = dataclasses.replace(first, id="inb_2", address="b@postroom.localhost")

    made = await house.store.add_inbox(first, client_id="agent-7", payload=b"x")
    again = await house.store.add_inbox(second, client_id="agent-7", payload=b"x")

    assert made.id == again.id
    with pytest.raises(Conflict, match="agent-7"):
        await house.store.add_inbox(second, client_id="agent-7", payload=b"y")


async def test_a_caller_sees_only_its_inboxes(house: House) -> None:
    mine, other = await new_inbox(house, "mine"), await new_inbox(house, "other")
    visible = frozenset({mine.id})

    found = await house.store.inboxes(visible, Slice())

    assert [mine.id] == [inbox.id for inbox in found.rows]
    assert 1 == found.total
    assert await house.store.inbox(other.id, visible) is None
    assert await house.store.rename_inbox(other.id, "x", visible) is None
    assert await house.store.remove_inbox(other.id, visible, force=True) is None


async def test_pages_of_inboxes_follow_each_other(house: House) -> None:
    ids = [(await new_inbox(house, f"box{number}")).id for number in range(5)]

    first = await house.store.inboxes(None, Slice(limit=2))
    await new_inbox(house, "late")
    second = await house.store.inboxes(None, Slice(limit=2, after=first.next))
    skipped = await house.store.inboxes(None, Slice(limit=2, offset=4))

    assert ids[:2] == [inbox.id for inbox in first.rows]
    assert ids[2:4] == [inbox.id for inbox in second.rows]
    assert (6, 2) == (second.total, second.offset)
    assert (ids[4], None) == (skipped.rows[0].id, skipped.next)


async def test_an_inbox_with_mail_needs_force_and_takes_everything_along(
    house: House, inbox: Inbox
) -> None:
    kept = await new_inbox(house, "kept")
    shared = mail("Both", attachments=[("a.txt", "text/plain", b"shared")])
    await deliver(house, inbox, shared)
    await deliver(house, kept, shared)
    own = await deliver(house, inbox, mail("Only here"))
    raw = await house.store.message(own.message_id, None)
    assert raw is not None

    with pytest.raises(Conflict, match="force"):
        await house.store.remove_inbox(inbox.id, None, force=False)
    unused = await house.store.remove_inbox(inbox.id, None, force=True)

    assert (raw.raw,) == unused
    assert await house.store.inbox(inbox.id, None) is None
    assert 1 == (await house.store.messages(MessageQuery())).total
    assert () == await house.store.problems()
