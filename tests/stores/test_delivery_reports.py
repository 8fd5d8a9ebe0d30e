"""The status of mail is the most certain and latest report, in any order of reports."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import OutboxJob
from postroom.model.mail.storage import DeliveryReport, RecipientStatus
from postroom.model.view import EVERYTHING
from postroom.pipeline.ingest import Arrival
from postroom.pipeline.services import Services
from tests.mails import SOME, mail, prepare
from tests.stores.sends import NOW, a_send

LEASE = {"until": NOW + timedelta(seconds=30), "free": SOME, "max_per_domain": 9}
ANA, BO = "ana@example.com", "bo@example.com"


async def handing_over(services: Services, inbox: Inbox, *pending: str) -> OutboxJob:
    """A mail to two recipients that is being transmitted."""
    send = await a_send(services, inbox)
    queued = (Recipient(ANA, "queued"), Recipient(BO, "queued"))
    message = dataclasses.replace(send.message, recipients=queued, internet_message_id="it@here")
    await services.store.record_send(dataclasses.replace(send, message=message))
    (job,) = (await services.store.claim_mail("worker", now=NOW, **LEASE)).jobs
    assert await services.store.begin_transmission(job, pending)
    return job


async def report(services: Services, inbox: Inbox, status: str = "bounced") -> None:
    """A report about Ana's copy arrives."""
    raw = mail("Undelivered", to=inbox.address)
    said = DeliveryReport("it@here", (RecipientStatus((ANA,), status, "550 no such user"),))
    message = await prepare(services, Arrival(raw, inbox.id))
    await services.store.add_messages([dataclasses.replace(message, report=said)])


async def settle(services: Services, job: OutboxJob, status: str) -> None:
    said = {address: Recipient(address, status) for address in (ANA, BO)}
    await services.store.settle_mail(job, said, now=NOW, next_at=NOW)


async def statuses(services: Services, job: OutboxJob) -> list[str]:
    message = await services.store.message(job.message_id, EVERYTHING)
    assert message is not None
    return [recipient.status for recipient in message.recipients or ()]


@pytest.mark.parametrize("said", ["sent", "queued", "unknown"])
@pytest.mark.parametrize("reported", ["bounced", "delivered"])
async def test_a_report_that_arrives_before_the_relays_reply_is_kept(
    services: Services, inbox: Inbox, reported: str, said: str
) -> None:
    job = await handing_over(services, inbox, ANA, BO)
    await report(services, inbox, reported)
    await settle(services, job, said)

    assert [reported, said] == await statuses(services, job)


async def test_a_report_about_an_unsent_recipient_is_ignored(
    services: Services, inbox: Inbox
) -> None:
    job = await handing_over(services, inbox, BO)
    await report(services, inbox)

    assert ["queued", "queued"] == await statuses(services, job)


async def test_a_report_on_mail_of_a_dead_worker_is_kept(services: Services, inbox: Inbox) -> None:
    job = await handing_over(services, inbox, ANA, BO)
    await report(services, inbox)
    later = NOW + timedelta(minutes=1)
    claimed = await services.store.claim_mail("next", now=later, **LEASE)

    assert ({job.message_id: 1}, ()) == (claimed.lost, claimed.jobs)
    assert ["bounced", "unknown"] == await statuses(services, job)


async def test_a_late_worker_does_not_override_a_report(services: Services, inbox: Inbox) -> None:
    job = await handing_over(services, inbox, ANA, BO)
    await services.store.claim_mail("next", now=NOW + timedelta(minutes=1), **LEASE)
    await report(services, inbox)
    await settle(services, job, "sent")

    assert ["bounced", "sent"] == await statuses(services, job)
