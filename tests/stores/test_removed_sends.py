"""A removed mail does not vanish on its way out, and a repeated send hears what became of it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from postroom.errors import Conflict
from postroom.model.inbox import Inbox
from postroom.model.message import Recipient
from postroom.model.stored import NewSend
from postroom.pipeline.house import House
from tests.mails import SOME
from tests.stores.sends import NOW, a_send

REMOVED = "its copy here was removed since"
LEASE = {"now": NOW, "until": NOW + timedelta(minutes=1), "free": SOME, "most_per_domain": 9}


async def queued(house: House, inbox: Inbox, **changes: object) -> NewSend:
    send = await a_send(house, inbox, **changes)
    waiting = (Recipient("x@example.com", "queued"),)
    return dataclasses.replace(send, message=dataclasses.replace(send.message, recipients=waiting))


async def test_a_mail_on_its_way_is_cancelled_before_it_is_removed(
    house: House, inbox: Inbox
) -> None:
    first = await house.store.record_send(await queued(house, inbox))
    with pytest.raises(Conflict, match="cancel_message"):
        await house.store.remove_message(first.message_id, None)
    (job,) = (await house.store.claim_mail("worker", **LEASE)).jobs
    with pytest.raises(Conflict, match="on its way"):
        await house.store.remove_message(first.message_id, None)
    await house.store.release_mail(job)
    await house.store.cancel_mail(first.message_id, None, NOW)

    assert await house.store.remove_message(first.message_id, None) is not None
    again = await house.store.record_send(await queued(house, inbox))
    assert (None, "queued") == (again.deduplicated, again.status)


async def test_a_key_answers_with_what_became_of_a_removed_mail(house: House, inbox: Inbox) -> None:
    sends = [await queued(house, inbox, idempotency_key="k") for _ in range(2)]
    first = await house.store.record_send(sends[0])
    await house.store.cancel_mail(first.message_id, None, NOW)
    await house.store.remove_message(first.message_id, None)
    again = await house.store.record_send(sends[1])

    assert (first.message_id, "failed", (REMOVED,)) == (
        again.message_id,
        again.status,
        again.warnings,
    )


@pytest.mark.parametrize("status", ["failed", "unknown"])
async def test_mail_that_goes_with_its_inbox_is_not_said_to_be_queued(
    house: House, inbox: Inbox, status: str
) -> None:
    sends = [await queued(house, inbox, idempotency_key="k") for _ in range(2)]
    await house.store.record_send(sends[0])
    if status == "unknown":
        (job,) = (await house.store.claim_mail("worker", **LEASE)).jobs
        assert await house.store.begin_handing_over(job, ["x@example.com"])
    await house.store.remove_inbox(inbox.id, None, force=True)
    again = await house.store.record_send(sends[1])

    assert (status, (REMOVED,)) == (again.status, again.warnings)
