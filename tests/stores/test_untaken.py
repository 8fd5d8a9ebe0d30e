"""Mail that nobody takes says why it waits, and is given up after 48 hours."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

import pytest

from postroom.model.inbox import Inbox
from postroom.model.message import Recipient
from postroom.model.outbox import OutboxJob
from postroom.pipeline.house import House
from tests.mails import SOME
from tests.stores.sends import NOW, a_send
from tests.stores.test_outcomes import ANA, BO

WHY = "nobody has what it takes"
HOUR = timedelta(hours=1)


async def queued(house: House, inbox: Inbox) -> str:
    send = await a_send(house, inbox)
    waiting = (Recipient(ANA, "queued"), Recipient(BO, "delivered"))
    message = dataclasses.replace(send.message, recipients=waiting)
    return (await house.store.record_send(dataclasses.replace(send, message=message))).message_id


async def claim(house: House, now: datetime) -> tuple[OutboxJob, ...]:
    until = now + timedelta(seconds=30)
    claimed = await house.store.claim_mail(
        "worker", now=now, until=until, free=SOME, most_per_domain=99
    )
    return claimed.jobs


async def anas(house: House, message_id: str) -> tuple[str, str | None]:
    """What is said of Ana, while Bo has got his."""
    message = await house.store.message(message_id, None)
    assert message is not None
    ana, bo = message.recipients or ()
    assert "delivered" == bo.status
    return ana.status, ana.detail


async def told(house: House) -> list[str]:
    events = await house.store.events_after(0, limit=100)
    return [e.type for e in events if e.type in ("message.deferred", "message.bounced")]


async def test_mail_that_waits_for_the_relay_says_so_once_and_goes_with_whoever_has_one(
    house: House, inbox: Inbox
) -> None:
    message_id = await queued(house, inbox)
    for later in range(3):
        assert {} == await house.store.leave_unrelayed(WHY, NOW + later * HOUR)

    assert ("queued", WHY) == await anas(house, message_id)
    assert ["message.deferred"] == await told(house)
    (job,) = await claim(house, NOW + 3 * HOUR)
    assert (message_id, (ANA,), 0) == (job.message_id, job.envelope.recipients, job.attempts)


async def test_mail_that_nobody_could_relay_for_two_days_is_given_up(
    house: House, inbox: Inbox
) -> None:
    message_id = await queued(house, inbox)
    late = NOW + 100 * HOUR
    assert {} == await house.store.leave_unrelayed(WHY, late)
    assert {} == await house.store.leave_unrelayed(WHY, late + 47 * HOUR)
    given_up = await house.store.leave_unrelayed(WHY, late + 48 * HOUR)

    assert {message_id: 1} == given_up
    assert ("bounced", f"given up after 48 hours: {WHY}") == await anas(house, message_id)
    assert ["message.deferred", "message.bounced"] == await told(house)
    assert () == await claim(house, late + 49 * HOUR)
    assert {} == await house.store.leave_unrelayed(WHY, late + 50 * HOUR)


async def test_mail_that_a_relay_is_getting_is_nobodys_to_give_up(
    house: House, inbox: Inbox
) -> None:
    message_id = await queued(house, inbox)
    await house.store.leave_unrelayed(WHY, NOW)
    late = NOW + 60 * HOUR
    (job,) = await claim(house, late)
    assert {} == await house.store.leave_unrelayed(WHY, late)
    assert await house.store.begin_handing_over(job, [ANA])
    assert {} == await house.store.leave_unrelayed(WHY, late)

    assert ("queued", WHY) == await anas(house, message_id)


async def test_nothing_is_given_up_while_all_mail_is_held_back(house: House, inbox: Inbox) -> None:
    message_id = await queued(house, inbox)
    await house.store.leave_unrelayed(WHY, NOW)
    await house.store.pause_outbox(paused=True)
    assert {} == await house.store.leave_unrelayed(WHY, NOW + 60 * HOUR)

    assert ("queued", WHY) == await anas(house, message_id)


@pytest.mark.parametrize("way", ["relay", "account"])
async def test_who_has_tried_a_mail_gets_a_last_attempt(
    house: House, inbox: Inbox, way: str
) -> None:
    message_id = await queued(house, inbox)
    (job,) = await claim(house, NOW)
    assert await house.store.begin_handing_over(job, ())
    busy = {ANA: Recipient(ANA, "queued", "450 busy")}
    await house.store.settle_mail(job, busy, now=NOW, next_at=NOW + HOUR)

    async def left(at: datetime) -> dict[str, int]:
        if way == "relay":
            return dict(await house.store.leave_unrelayed(WHY, at))
        (again,) = await claim(house, at)
        return dict(await house.store.leave_mail(again, WHY, now=at, next_at=at))

    assert {} == await left(NOW + 51 * HOUR)
    assert {message_id: 1} == await left(NOW + 52 * HOUR)


async def test_mail_whose_login_nobody_has_says_so_after_a_while_and_is_given_up(
    house: House, inbox: Inbox
) -> None:
    message_id = await queued(house, inbox)
    seen = []
    for waited in (timedelta(), timedelta(seconds=10), 2 * HOUR, 3 * HOUR):
        (job,) = await claim(house, NOW + waited)
        after = NOW + waited + timedelta(seconds=10)
        assert {} == await house.store.leave_mail(job, WHY, now=NOW + waited, next_at=after)
        assert () == await claim(house, NOW + waited)
        seen.append(await anas(house, message_id))
    (job,) = await claim(house, NOW + 48 * HOUR)
    late = NOW + 48 * HOUR

    assert [("queued", None)] * 2 + [("queued", WHY)] * 2 == seen
    assert {message_id: 1} == await house.store.leave_mail(job, WHY, now=late, next_at=late)
    assert ("bounced", f"given up after 48 hours: {WHY}") == await anas(house, message_id)
    assert ["message.deferred", "message.bounced"] == await told(house)
    assert () == await claim(house, NOW + 49 * HOUR)


async def test_who_lacks_the_login_does_not_speak_over_who_has_it(
    house: House, inbox: Inbox
) -> None:
    message_id = await queued(house, inbox)
    busy = {ANA: Recipient(ANA, "queued", "450 busy")}
    for hours in range(0, 6, 2):
        at = NOW + hours * HOUR
        (job,) = await claim(house, at)
        assert await house.store.begin_handing_over(job, ())
        await house.store.settle_mail(job, busy, now=at, next_at=at + HOUR)
        (job,) = await claim(house, at + HOUR)
        assert {} == await house.store.leave_mail(job, WHY, now=at + HOUR, next_at=at + HOUR)
        assert ("queued", "450 busy") == await anas(house, message_id)

    assert ["message.deferred"] * 3 == await told(house)


async def test_who_tries_a_mail_first_has_two_days_however_long_it_waited(
    house: House, inbox: Inbox
) -> None:
    message_id = await queued(house, inbox)
    await house.store.leave_unrelayed(WHY, NOW)
    late = NOW + 72 * HOUR
    (job,) = await claim(house, late)
    assert await house.store.begin_handing_over(job, ())
    busy = {ANA: Recipient(ANA, "queued", "450 busy")}
    await house.store.settle_mail(job, busy, now=late, next_at=late)

    assert {} == await house.store.leave_unrelayed(WHY, late + 51 * HOUR)
    assert {message_id: 1} == await house.store.leave_unrelayed(WHY, late + 52 * HOUR)


async def test_who_may_have_got_a_mail_may_have_it_though_a_retry_had_nowhere_to_go(
    house: House, inbox: Inbox
) -> None:
    message_id = await queued(house, inbox)
    (job,) = await claim(house, NOW)
    assert await house.store.begin_handing_over(job, [ANA])
    lost = {ANA: Recipient(ANA, "unknown", "the answer was lost")}
    await house.store.settle_mail(job, lost, now=NOW, next_at=NOW)
    await house.store.retry_mail(message_id, None, NOW)
    (again,) = await claim(house, NOW)
    nowhere = {ANA: Recipient(ANA, "captured", "no relay is configured, so it was not sent")}
    assert await house.store.deliver_scheduled(again, [], nowhere, NOW)

    status, detail = await anas(house, message_id)
    assert "unknown" == status
    assert "not tried again" in str(detail)
    assert "the answer was lost" in str(detail)
