"""Events are written once, with the change that causes them, and notify every process."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from postroom.errors import NotFound
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, NOTHING, only
from postroom.pipeline.services import Services
from tests.mails import deliver, mail, new_inbox
from tests.stores.conftest import OpenAgain
from tests.stores.sends import a_send


async def types(services: Services, **query: object) -> list[str]:
    asked: dict[str, Any] = {"visible": EVERYTHING, **query}
    found = await services.store.events(EventQuery(**asked))
    return [event.type for event in found.rows]


async def test_a_mail_that_arrives_twice_is_one_event(services: Services, inbox: Inbox) -> None:
    raw = mail("Once")
    added = [await deliver(services, inbox, raw) for _ in range(3)]

    [event] = (await services.store.events(EventQuery(visible=EVERYTHING))).rows

    assert (added[0].message_id, added[0].thread_id) == (event.message_id, event.thread_id)
    assert {"from_address": "ana@example.com", "subject": "Once"} == event.data


async def test_a_send_has_events_for_each_recipient(services: Services, inbox: Inbox) -> None:
    sent = await services.store.record_send(await a_send(services, inbox))

    [event] = (
        await services.store.events(EventQuery(visible=EVERYTHING, message_id=sent.message_id))
    ).rows

    assert "message.captured" == event.type
    assert {"recipients": [{"address": "x@example.com"}]} == event.data


async def test_events_are_listed_oldest_first_in_pages(services: Services, inbox: Inbox) -> None:
    for number in range(5):
        await deliver(services, inbox, mail(f"{number}"))

    first = await services.store.events(EventQuery(visible=EVERYTHING, page=Slice(limit=2)))
    second = await services.store.events(
        EventQuery(visible=EVERYTHING, page=Slice(limit=2, after=first.next))
    )

    assert ["0", "1"] == [event.data["subject"] for event in first.rows]
    assert ["2", "3"] == [event.data["subject"] for event in second.rows]
    assert (5, 2) == (second.total, second.offset)


async def test_a_hidden_inbox_has_no_events(services: Services, inbox: Inbox) -> None:
    other = await new_inbox(services, "other")
    await deliver(services, inbox, mail())
    await deliver(services, other, mail())

    assert 1 == len(await types(services, visible=only(other.id)))
    assert [] == await types(services, visible=NOTHING)
    assert 2 == len(await types(services))


async def test_events_since_a_position_are_filtered_by_inbox(
    services: Services, inbox: Inbox
) -> None:
    other, silent = await new_inbox(services, "other"), await new_inbox(services, "silent")
    for place in (inbox, other, inbox):
        await deliver(services, place, mail())
    first, second, third = await services.store.events_after(0, limit=9, visible=EVERYTHING)

    assert [second] == await services.store.events_after(0, limit=9, visible=only(other.id))
    assert [] == await services.store.events_after(0, limit=9, visible=only(silent.id))
    assert third.number == await services.store.newest_event(visible=EVERYTHING)
    assert second.number == await services.store.newest_event(only(other.id))
    assert 0 == await services.store.newest_event(only(silent.id))
    assert first.id == await services.store.last_event(inbox.id, second.number)
    assert await services.store.last_event(silent.id, third.number) is None


async def test_permanent_deletion_deletes_events(services: Services, inbox: Inbox) -> None:
    added = await deliver(services, inbox, mail())
    await services.store.remove_message(added.message_id, EVERYTHING)

    assert [] == await types(services)
    with pytest.raises(NotFound, match="leave it out"):
        await services.store.event_number("evt_unknown", EVERYTHING)


async def test_a_removed_event_is_still_a_valid_position(services: Services, inbox: Inbox) -> None:
    other = await new_inbox(services, "other")
    added = [await deliver(services, place, mail()) for place in (inbox, inbox, other, inbox)]
    events = await services.store.events_after(0, limit=9, visible=EVERYTHING)
    await services.store.remove_message(added[1].message_id, EVERYTHING)
    await services.store.remove_inbox(other.id, EVERYTHING, force=True)

    for event in events[1:3]:
        assert event.number == await services.store.event_number(event.id, EVERYTHING)
        assert event.number == await services.store.event_number(event.message_id or "", EVERYTHING)
    assert [events[3]] == await services.store.events_after(
        events[1].number, limit=9, visible=EVERYTHING
    )


async def test_the_position_of_an_event_is_known_in_its_own_inboxes_only(
    services: Services, inbox: Inbox
) -> None:
    other = await new_inbox(services, "other")
    added = [await deliver(services, other, mail()) for _ in range(2)]
    first, second = await services.store.events_after(0, limit=9, visible=EVERYTHING)
    await services.store.remove_message(added[0].message_id, EVERYTHING)

    for event in (first, second):
        for since in (event.id, event.message_id or ""):
            seen = await services.store.event_number(since, only(inbox.id, other.id))
            assert event.number == seen
            for visible in (only(inbox.id), NOTHING):
                with pytest.raises(NotFound, match=f"there is no {since}"):
                    await services.store.event_number(since, visible)


async def begin_to_listen(services: Services) -> None:
    """A subscriber may be notified at once: it may have missed what came before."""
    position, now = services.store.notifier.position("heartbeats"), services.clock()
    await services.store.add_heartbeat("serving", "us", now=now, lifetime=timedelta(minutes=1))
    await asyncio.wait_for(services.store.notifier.wait("heartbeats", position), 60)


async def test_a_refused_write_sends_no_notification(services: Services, inbox: Inbox) -> None:
    await begin_to_listen(services)
    position = services.store.notifier.position("events")
    gone = dataclasses.replace(inbox, id="inb_gone")
    with pytest.raises(NotFound):
        await deliver(services, gone, mail())
    await deliver(services, inbox, mail())

    assert position + 1 == await asyncio.wait_for(
        services.store.notifier.wait("events", position), 60
    )


async def test_a_commit_notifies_other_processes(
    services: Services, inbox: Inbox, open_again: OpenAgain
) -> None:
    other = await open_again()
    position = other.notifier.position("events")
    await deliver(services, inbox, mail())

    assert position < await asyncio.wait_for(other.notifier.wait("events", position), 5)
    await other.close()
