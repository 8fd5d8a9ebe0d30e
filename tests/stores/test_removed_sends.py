"""Removing a pending mail cancels it, and a repeated send returns its outcome."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from postroom.errors import Conflict
from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import StoredDraft
from postroom.model.mail.storage import NewSend
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from tests.mails import SOME
from tests.stores.sends import NOW, a_send

REMOVED = "its message was removed since"
LEASE = {"now": NOW, "until": NOW + timedelta(minutes=1), "free": SOME, "max_per_domain": 9}


async def queued(services: Services, inbox: Inbox, **changes: object) -> NewSend:
    send = await a_send(services, inbox, **changes)
    waiting = (Recipient("x@example.com", "queued"),)
    return dataclasses.replace(send, message=dataclasses.replace(send.message, recipients=waiting))


def draft_in(inbox: Inbox) -> StoredDraft:
    return StoredDraft("drf_1", inbox.id, {"subject": "Sent"}, None, NOW, NOW)


async def test_a_pending_mail_is_cancelled_before_it_is_removed(
    services: Services, inbox: Inbox
) -> None:
    first = await services.store.record_send(await queued(services, inbox))
    with pytest.raises(Conflict, match="cancel_message"):
        await services.store.remove_message(first.message_id, EVERYTHING)
    (job,) = (await services.store.claim_mail("worker", **LEASE)).jobs
    with pytest.raises(Conflict, match="has not been sent"):
        await services.store.remove_message(first.message_id, EVERYTHING)
    await services.store.release_mail(job)
    await services.store.cancel_mail(first.message_id, EVERYTHING, draft_in(inbox), NOW)

    assert await services.store.remove_message(first.message_id, EVERYTHING) is None
    again = await services.store.record_send(await queued(services, inbox))
    assert (None, "queued") == (again.deduplicated, again.status)


async def test_a_repeated_send_returns_the_outcome_of_a_removed_mail(
    services: Services, inbox: Inbox
) -> None:
    sends = [await queued(services, inbox, idempotency_key="k") for _ in range(2)]
    first = await services.store.record_send(sends[0])
    await services.store.cancel_mail(first.message_id, EVERYTHING, draft_in(inbox), NOW)
    again = await services.store.record_send(sends[1])

    assert (first.message_id, "failed", (REMOVED,)) == (
        again.message_id,
        again.status,
        again.warnings,
    )


@pytest.mark.parametrize("status", ["failed", "unknown"])
async def test_mail_removed_with_its_inbox_is_not_reported_as_queued(
    services: Services, inbox: Inbox, status: str
) -> None:
    sends = [await queued(services, inbox, idempotency_key="k") for _ in range(2)]
    await services.store.record_send(sends[0])
    if status == "unknown":
        (job,) = (await services.store.claim_mail("worker", **LEASE)).jobs
        assert await services.store.begin_transmission(job, ["x@example.com"])
    await services.store.remove_inbox(inbox.id, EVERYTHING, force=True)
    again = await services.store.record_send(sends[1])

    assert (status, (REMOVED,)) == (again.status, again.warnings)
