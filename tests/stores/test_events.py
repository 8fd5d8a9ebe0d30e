"""Events are written with what causes them, once, and every process hears of them."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import pytest

from postroom.errors import NotFound
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.page import Slice
from postroom.pipeline.house import House
from tests.mails import deliver, mail, new_inbox
from tests.stores.conftest import OpenAgain
from tests.stores.sends import a_send


async def types(house: House, **query: object) -> list[str]:
    found = await house.store.events(EventQuery(**query))  # type: ignore[arg-type]
    return [event.type for event in found.rows]


async def test_a_mail_that_arrives_twice_is_one_event(house: House, inbox: Inbox) -> None:
    raw = mail("Once")
    added = [await deliver(house, inbox, raw) for _ in range(3)]

    [event] = (await house.store.events(EventQuery())).rows

    assert (added[0].message_id, added[0].thread_id) == (event.message_id, event.thread_id)
    assert {"from_address": "ana@example.com", "subject": "Once"} == event.data


async def test_a_send_tells_what_became_of_each_recipient(house: House, inbox: Inbox) -> None:
    sent = await house.store.record_send(await a_send(house, inbox))

    [event] = (await house.store.events(EventQuery(message_id=sent.message_id))).rows

    assert "message.captured" == event.type
    assert {"recipients": [{"address": "x@example.com"}]} == event.data


async def test_events_are_listed_oldest_first_in_pages(house: House, inbox: Inbox) -> None:
    for number in range(5):
        await deliver(house, inbox, mail(f"{number}"))

    first = await house.store.events(EventQuery(page=Slice(limit=2)))
    second = await house.store.events(EventQuery(page=Slice(limit=2, after=first.next)))

    assert ["0", "1"] == [event.data["subject"] for event in first.rows]
    assert ["2", "3"] == [event.data["subject"] for event in second.rows]
    assert (5, 2) == (second.total, second.offset)


async def test_an_inbox_that_is_not_seen_has_no_events(house: House, inbox: Inbox) -> None:
    other = await new_inbox(house, "other")
    await deliver(house, inbox, mail())
    await deliver(house, other, mail())

    assert 1 == len(await types(house, visible=frozenset({other.id})))
    assert [] == await types(house, visible=frozenset())
    assert 2 == len(await types(house))


async def test_what_happened_since_is_read_of_the_inboxes_that_are_meant(
    house: House, inbox: Inbox
) -> None:
    other, silent = await new_inbox(house, "other"), await new_inbox(house, "silent")
    for place in (inbox, other, inbox):
        await deliver(house, place, mail())
    first, second, third = await house.store.events_after(0, limit=9)

    assert [second] == await house.store.events_after(0, limit=9, visible=frozenset([other.id]))
    assert [] == await house.store.events_after(0, limit=9, visible=frozenset([silent.id]))
    assert third.number == await house.store.newest_event()
    assert second.number == await house.store.newest_event(frozenset([other.id]))
    assert 0 == await house.store.newest_event(frozenset([silent.id]))
    assert first.id == await house.store.last_event(inbox.id, second.number)
    assert await house.store.last_event(silent.id, third.number) is None


async def test_what_is_removed_for_good_leaves_no_event(house: House, inbox: Inbox) -> None:
    added = await deliver(house, inbox, mail())
    await house.store.remove_message(added.message_id, None)

    assert [] == await types(house)
    with pytest.raises(NotFound, match="leave it out"):
        await house.store.event_number("evt_unknown")


async def test_whoever_saw_a_removed_event_last_goes_on_from_there(
    house: House, inbox: Inbox
) -> None:
    other = await new_inbox(house, "other")
    added = [await deliver(house, place, mail()) for place in (inbox, inbox, other, inbox)]
    events = await house.store.events_after(0, limit=9)
    await house.store.remove_message(added[1].message_id, None)
    await house.store.remove_inbox(other.id, None, force=True)

    for event in events[1:3]:
        assert event.number == await house.store.event_number(event.id)
        assert event.number == await house.store.event_number(event.message_id or "")
    assert [events[3]] == await house.store.events_after(events[1].number, limit=9)


async def begin_to_listen(house: House) -> None:
    """A bell may ring when it begins to listen: what came before may have been missed."""
    rung, now = house.store.bell.rung("attendance"), house.clock()
    await house.store.attend("serving", "us", now=now, lasting=timedelta(minutes=1))
    await asyncio.wait_for(house.store.bell.wait("attendance", rung), 60)


async def test_a_refused_write_announces_nothing(house: House, inbox: Inbox) -> None:
    await begin_to_listen(house)
    rung = house.store.bell.rung("events")
    gone = dataclasses.replace(inbox, id="inb_gone")
    with pytest.raises(NotFound):
        await deliver(house, gone, mail())
    await deliver(house, inbox, mail())

    assert rung + 1 == await asyncio.wait_for(house.store.bell.wait("events", rung), 60)


async def test_a_commit_is_heard_by_others_on_the_same_data(
    house: House, inbox: Inbox, open_again: OpenAgain
) -> None:
    other = await open_again()
    rung = other.bell.rung("events")
    await deliver(house, inbox, mail())

    assert rung < await asyncio.wait_for(other.bell.wait("events", rung), 5)
    await other.close()
