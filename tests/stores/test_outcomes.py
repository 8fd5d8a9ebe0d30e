"""What became of mail is what was said last by who knows most, in whichever order it is said."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from postroom.mail.parse import parse_message
from postroom.model.inbox import Inbox
from postroom.model.message import Recipient
from postroom.model.outbox import OutboxJob
from postroom.model.stored import DeliveryReport, Fate
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, put_away
from tests.mails import SOME, mail
from tests.stores.sends import NOW, a_send

LEASE = {"until": NOW + timedelta(seconds=30), "free": SOME, "most_per_domain": 9}
ANA, BO = "ana@example.com", "bo@example.com"


async def handing_over(house: House, inbox: Inbox, *pending: str) -> OutboxJob:
    """A mail to two, which a relay is getting for some of them."""
    send = await a_send(house, inbox)
    queued = (Recipient(ANA, "queued"), Recipient(BO, "queued"))
    message = dataclasses.replace(send.message, recipients=queued, internet_message_id="it@here")
    await house.store.record_send(dataclasses.replace(send, message=message))
    (job,) = (await house.store.claim_mail("worker", now=NOW, **LEASE)).jobs
    assert await house.store.begin_handing_over(job, pending)
    return job


async def report(house: House, inbox: Inbox, status: str = "bounced") -> None:
    """A report on Ana's copy comes in."""
    raw = mail("Undelivered", to=inbox.address)
    said = DeliveryReport("it@here", (Fate((ANA,), status, "550 no such user"),))
    async with put_away(house, [(Arrival(raw, inbox.id), parse_message(raw))]) as (message,):
        await house.store.add_messages([dataclasses.replace(message, report=said)])


async def settle(house: House, job: OutboxJob, status: str) -> None:
    said = {address: Recipient(address, status) for address in (ANA, BO)}
    await house.store.settle_mail(job, said, now=NOW, next_at=NOW)


async def statuses(house: House, job: OutboxJob) -> list[str]:
    message = await house.store.message(job.message_id, None)
    assert message is not None
    return [recipient.status for recipient in message.recipients or ()]


@pytest.mark.parametrize("said", ["sent", "queued", "unknown"])
@pytest.mark.parametrize("reported", ["bounced", "delivered"])
async def test_a_report_that_is_faster_than_the_relay_stands(
    house: House, inbox: Inbox, reported: str, said: str
) -> None:
    job = await handing_over(house, inbox, ANA, BO)
    await report(house, inbox, reported)
    await settle(house, job, said)

    assert [reported, said] == await statuses(house, job)


async def test_a_report_on_whom_the_relay_has_not_got_the_mail_for_is_another_mails(
    house: House, inbox: Inbox
) -> None:
    job = await handing_over(house, inbox, BO)
    await report(house, inbox)

    assert ["queued", "queued"] == await statuses(house, job)


async def test_a_report_on_mail_of_a_dead_worker_stands_and_the_rest_is_unknown(
    house: House, inbox: Inbox
) -> None:
    job = await handing_over(house, inbox, ANA, BO)
    await report(house, inbox)
    later = NOW + timedelta(minutes=1)
    claimed = await house.store.claim_mail("next", now=later, **LEASE)

    assert ({job.message_id: 1}, ()) == (claimed.lost, claimed.jobs)
    assert ["bounced", "unknown"] == await statuses(house, job)


async def test_a_worker_that_was_thought_dead_does_not_deny_a_report(
    house: House, inbox: Inbox
) -> None:
    job = await handing_over(house, inbox, ANA, BO)
    await house.store.claim_mail("next", now=NOW + timedelta(minutes=1), **LEASE)
    await report(house, inbox)
    await settle(house, job, "sent")

    assert ["bounced", "sent"] == await statuses(house, job)
