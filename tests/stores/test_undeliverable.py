"""Mail that no process can transmit says why it waits, and is abandoned after 48 hours."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

import pytest

from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import OutboxJob
from postroom.model.mail.storage import Gate
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from tests.mails import SOME
from tests.stores.sends import NOW, a_send
from tests.stores.test_delivery_reports import ANA, BO

WHY = "nobody has what it takes"
HOUR = timedelta(hours=1)


async def queued(services: Services, inbox: Inbox) -> str:
    send = await a_send(services, inbox)
    waiting = (Recipient(ANA, "queued"), Recipient(BO, "delivered"))
    message = dataclasses.replace(send.message, recipients=waiting)
    return (await services.store.record_send(dataclasses.replace(send, message=message))).message_id


async def claim(services: Services, now: datetime) -> tuple[OutboxJob, ...]:
    until = now + timedelta(seconds=30)
    claimed = await services.store.claim_mail(
        "worker", now=now, until=until, free=SOME, max_per_domain=99
    )
    return claimed.jobs


async def anas(services: Services, message_id: str) -> tuple[str, str | None]:
    """The status of Ana's copy, after Bo's was delivered."""
    message = await services.store.message(message_id, EVERYTHING)
    assert message is not None
    ana, bo = message.recipients or ()
    assert "delivered" == bo.status
    return ana.status, ana.detail


async def told(services: Services) -> list[str]:
    events = await services.store.events_after(0, limit=100, visible=EVERYTHING)
    return [e.type for e in events if e.type in ("message.deferred", "message.bounced")]


async def test_mail_that_waits_for_a_relay_says_so_once(services: Services, inbox: Inbox) -> None:
    message_id = await queued(services, inbox)
    for later in range(3):
        assert {} == await services.store.defer_unrelayed(WHY, NOW + later * HOUR)

    assert ("queued", WHY) == await anas(services, message_id)
    assert ["message.deferred"] == await told(services)
    (job,) = await claim(services, NOW + 3 * HOUR)
    assert (message_id, (ANA,), 0) == (job.message_id, job.envelope.recipients, job.attempts)


async def test_mail_without_a_relay_for_two_days_is_abandoned(
    services: Services, inbox: Inbox
) -> None:
    message_id = await queued(services, inbox)
    late = NOW + 100 * HOUR
    assert {} == await services.store.defer_unrelayed(WHY, late)
    assert {} == await services.store.defer_unrelayed(WHY, late + 47 * HOUR)
    given_up = await services.store.defer_unrelayed(WHY, late + 48 * HOUR)

    assert {message_id: 1} == given_up
    assert ("bounced", f"abandoned after 48 hours: {WHY}") == await anas(services, message_id)
    assert ["message.deferred", "message.bounced"] == await told(services)
    assert () == await claim(services, late + 49 * HOUR)
    assert {} == await services.store.defer_unrelayed(WHY, late + 50 * HOUR)


async def test_mail_in_transmission_is_not_abandoned(services: Services, inbox: Inbox) -> None:
    message_id = await queued(services, inbox)
    await services.store.defer_unrelayed(WHY, NOW)
    late = NOW + 60 * HOUR
    (job,) = await claim(services, late)
    assert {} == await services.store.defer_unrelayed(WHY, late)
    assert await services.store.begin_transmission(job, [ANA])
    assert {} == await services.store.defer_unrelayed(WHY, late)

    assert ("queued", WHY) == await anas(services, message_id)


async def test_nothing_is_abandoned_while_the_outbox_is_paused(
    services: Services, inbox: Inbox
) -> None:
    message_id = await queued(services, inbox)
    await services.store.defer_unrelayed(WHY, NOW)
    await services.store.pause_outbox(paused=True)
    assert {} == await services.store.defer_unrelayed(WHY, NOW + 60 * HOUR)

    assert ("queued", WHY) == await anas(services, message_id)


@pytest.mark.parametrize("way", ["relay", "account"])
async def test_a_worker_with_a_relay_gets_a_last_attempt(
    services: Services, inbox: Inbox, way: str
) -> None:
    message_id = await queued(services, inbox)
    (job,) = await claim(services, NOW)
    assert await services.store.begin_transmission(job, ())
    busy = {ANA: Recipient(ANA, "queued", "450 busy")}
    await services.store.settle_mail(job, busy, now=NOW, next_at=NOW + HOUR)

    async def left(at: datetime) -> dict[str, int]:
        if way == "relay":
            return dict(await services.store.defer_unrelayed(WHY, at))
        (again,) = await claim(services, at)
        return dict(await services.store.defer_mail(again, WHY, now=at, next_at=at))

    assert {} == await left(NOW + 51 * HOUR)
    assert {message_id: 1} == await left(NOW + 52 * HOUR)


async def test_mail_without_a_login_says_so_and_is_abandoned(
    services: Services, inbox: Inbox
) -> None:
    message_id = await queued(services, inbox)
    seen = []
    for waited in (timedelta(), timedelta(seconds=10), 2 * HOUR, 3 * HOUR):
        (job,) = await claim(services, NOW + waited)
        after = NOW + waited + timedelta(seconds=10)
        assert {} == await services.store.defer_mail(job, WHY, now=NOW + waited, next_at=after)
        assert () == await claim(services, NOW + waited)
        seen.append(await anas(services, message_id))
    (job,) = await claim(services, NOW + 48 * HOUR)
    late = NOW + 48 * HOUR

    assert [("queued", None)] * 2 + [("queued", WHY)] * 2 == seen
    assert {message_id: 1} == await services.store.defer_mail(job, WHY, now=late, next_at=late)
    assert ("bounced", f"abandoned after 48 hours: {WHY}") == await anas(services, message_id)
    assert ["message.deferred", "message.bounced"] == await told(services)
    assert () == await claim(services, NOW + 49 * HOUR)


async def test_a_machine_without_the_login_does_not_override_one_with_it(
    services: Services, inbox: Inbox
) -> None:
    message_id = await queued(services, inbox)
    busy = {ANA: Recipient(ANA, "queued", "450 busy")}
    for hours in range(0, 6, 2):
        at = NOW + hours * HOUR
        (job,) = await claim(services, at)
        assert await services.store.begin_transmission(job, ())
        await services.store.settle_mail(job, busy, now=at, next_at=at + HOUR)
        (job,) = await claim(services, at + HOUR)
        assert {} == await services.store.defer_mail(job, WHY, now=at + HOUR, next_at=at + HOUR)
        assert ("queued", "450 busy") == await anas(services, message_id)

    assert ["message.deferred"] * 3 == await told(services)


async def test_the_two_days_begin_with_the_first_attempt(services: Services, inbox: Inbox) -> None:
    message_id = await queued(services, inbox)
    await services.store.defer_unrelayed(WHY, NOW)
    late = NOW + 72 * HOUR
    (job,) = await claim(services, late)
    assert await services.store.begin_transmission(job, ())
    busy = {ANA: Recipient(ANA, "queued", "450 busy")}
    await services.store.settle_mail(job, busy, now=late, next_at=late)

    assert {} == await services.store.defer_unrelayed(WHY, late + 51 * HOUR)
    assert {message_id: 1} == await services.store.defer_unrelayed(WHY, late + 52 * HOUR)


async def test_an_unknown_outcome_stays_unknown_after_an_impossible_retry(
    services: Services, inbox: Inbox
) -> None:
    message_id = await queued(services, inbox)
    (job,) = await claim(services, NOW)
    assert await services.store.begin_transmission(job, [ANA])
    lost = {ANA: Recipient(ANA, "unknown", "the answer was lost")}
    await services.store.settle_mail(job, lost, now=NOW, next_at=NOW)
    await services.store.retry_mail(
        message_id, EVERYTHING, NOW, authors=("owner",), external_recipients=(), gate=Gate()
    )
    (again,) = await claim(services, NOW)
    nowhere = {ANA: Recipient(ANA, "captured", "no relay is configured, so it was not sent")}
    assert await services.store.deliver_scheduled(again, [], nowhere, NOW)

    status, detail = await anas(services, message_id)
    assert "unknown" == status
    assert "not tried again" in str(detail)
    assert "the answer was lost" in str(detail)
