"""Arriving mail: duplicates, threads and dates.

`ARRIVAL_CASES=10000` tries more deliveries than a normal run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.errors import NotFound
from postroom.model.event import EventQuery
from postroom.model.inbox import Inbox
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING, only
from postroom.pipeline.ingest import Arrival, receive_many
from postroom.pipeline.services import Services
from tests.mails import deliver, mail, new_inbox


async def test_the_same_mail_twice_is_one_message(services: Services, inbox: Inbox) -> None:
    raw = mail("Once", message_id="<once@example.com>")

    first = await deliver(services, inbox, raw)
    again = await deliver(services, inbox, b"Received: by another route\r\n" + raw)

    assert (False, True) == (first.is_duplicate, again.is_duplicate)
    assert first.message_id == again.message_id
    assert 1 == (await services.store.messages(MessageQuery(visible=EVERYTHING))).total


async def test_other_content_with_a_known_message_id_is_stored_with_a_defect(
    services: Services, inbox: Inbox
) -> None:
    first = await deliver(services, inbox, mail("One", message_id="<same@example.com>"))

    other = await deliver(services, inbox, mail("Two", message_id="<same@example.com>"))

    message = await services.store.message(other.message_id, EVERYTHING)
    assert message is not None
    assert not other.is_duplicate
    assert any(first.message_id in defect for defect in message.defects)


async def test_without_a_message_id_only_the_same_bytes_are_a_duplicate(
    services: Services, inbox: Inbox
) -> None:
    raw = mail("No id", message_id=None)

    first = await deliver(services, inbox, raw)
    same = await deliver(services, inbox, raw)
    other = await deliver(services, inbox, raw + b"\nP.S. one more line\n")

    assert first.message_id == same.message_id
    assert not other.is_duplicate


async def test_two_inboxes_each_keep_their_own_copy(services: Services, inbox: Inbox) -> None:
    second = await new_inbox(services, "second")
    raw = mail("For both")

    one, two = await deliver(services, inbox, raw), await deliver(services, second, raw)

    assert one.message_id != two.message_id
    assert one.thread_id != two.thread_id


ROUTES = (
    b"",
    b"Received: by mx.example.com; Sun, 1 Mar 2026 09:00:01 +0000\n",
    b"Return-Path: <ana@example.com>\nX-Spam-Status: No\nReceived: by another.example.com\n",
)
"""Headers that servers prepend to a mail."""


@settings(
    max_examples=int(os.environ.get("ARRIVAL_CASES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    order=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(ROUTES)), min_size=1, max_size=20)
)
async def test_any_multiset_of_deliveries_leaves_one_message_and_one_event_each(
    services: Services, order: list[tuple[int, bytes]]
) -> None:
    """By any route; a mail without a Message-ID has one route, since only its bytes identify it."""
    inbox = await new_inbox(services, f"box{services.new_id('x')[2:10]}")
    ids = ["<0@example.com>", "<1@example.com>", "<2@example.com>", None, None]
    raws = [mail(f"Mail {number}", message_id=own) for number, own in enumerate(ids)]

    for number, route in order:
        await deliver(services, inbox, (route if ids[number] else b"") + raws[number])

    found = await services.store.messages(MessageQuery(visible=EVERYTHING, inbox_id=inbox.id))
    events = await services.store.events(
        EventQuery(visible=only(inbox.id), types=("message.received",))
    )
    assert sorted({f"Mail {number}" for number, _ in order}) == sorted(
        m.subject for m in found.rows
    )
    assert {m.id for m in found.rows} == {event.message_id for event in events.rows}
    assert len(found.rows) == events.total


async def test_a_reply_joins_the_thread_of_its_parent(services: Services, inbox: Inbox) -> None:
    parent = await deliver(services, inbox, mail("Plan", message_id="<p@example.com>"))

    reply = await deliver(services, inbox, mail("Other words", in_reply_to="<p@example.com>"))
    cousin = await deliver(
        services, inbox, mail("More", references=["<p@example.com>", "<gone@x>"])
    )
    unrelated = await deliver(services, inbox, mail("Plan", message_id="<q@example.com>"))

    assert parent.thread_id == reply.thread_id == cousin.thread_id
    assert parent.thread_id != unrelated.thread_id


async def test_threads_merge_when_the_missing_parent_arrives_late(
    services: Services, inbox: Inbox
) -> None:
    first = await deliver(services, inbox, mail("A", in_reply_to="<root@example.com>"))
    second = await deliver(services, inbox, mail("B", references=["<middle@example.com>"]))
    assert first.thread_id != second.thread_id

    late = mail("C", message_id="<middle@example.com>", in_reply_to="<root@example.com>")
    third = await deliver(services, inbox, late)

    found = await services.store.messages(
        MessageQuery(visible=EVERYTHING, thread_id=third.thread_id)
    )
    assert {"A", "B", "C"} == {message.subject for message in found.rows}
    assert () == await services.store.problems()


async def test_a_thread_never_crosses_inboxes(services: Services, inbox: Inbox) -> None:
    other = await new_inbox(services, "other")
    parent = await deliver(services, inbox, mail("Plan", message_id="<p@example.com>"))

    reply = await deliver(services, other, mail("Re: Plan", in_reply_to="<p@example.com>"))

    assert parent.thread_id != reply.thread_id


@pytest.mark.parametrize(
    ("stated", "believed"),
    [
        (datetime(2026, 4, 1, 12, 0, tzinfo=UTC), True),
        (datetime(1998, 1, 1, tzinfo=UTC), True),
        (datetime(2026, 5, 1, 23, 0, tzinfo=UTC), True),
        (datetime(2026, 5, 3, tzinfo=UTC), False),
        (None, False),
    ],
)
async def test_the_date_header_is_used_unless_it_is_a_day_ahead(
    services: Services, inbox: Inbox, stated: datetime | None, *, believed: bool
) -> None:
    added = await deliver(services, inbox, mail(date=stated))

    message = await services.store.message(added.message_id, EVERYTHING)
    assert message is not None
    assert (stated if believed else message.received_at) == message.date
    assert timedelta(0) <= message.received_at - datetime(2026, 5, 1, tzinfo=UTC)


async def test_mail_for_an_inbox_that_is_gone_is_refused_and_leaves_nothing(
    services: Services, inbox: Inbox
) -> None:
    arrivals = [Arrival(mail("Here"), inbox.id), Arrival(mail("Nowhere"), "inb_gone")]

    with pytest.raises(NotFound):
        await receive_many(services, arrivals)

    assert 0 == (await services.store.messages(MessageQuery(visible=EVERYTHING))).total
