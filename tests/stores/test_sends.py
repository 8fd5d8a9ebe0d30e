"""Sends are recorded exactly once, within the rate limits of their keys."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import pytest

from postroom.errors import Conflict, RateLimited
from postroom.model.inbox import Inbox
from postroom.model.mail.message import Recipient
from postroom.model.mail.storage import MessageQuery, NewSend
from postroom.model.view import EVERYTHING
from postroom.pipeline.services import Services
from postroom.store.upgrade import SENDS_OF_AGENT
from tests.mails import SOME
from tests.stores.sends import NOW, a_send


async def test_one_idempotency_key_is_one_mail_with_any_concurrency(
    services: Services, inbox: Inbox
) -> None:
    sends = [await a_send(services, inbox, idempotency_key="k") for _ in range(20)]

    answers = await asyncio.gather(*(services.store.record_send(send) for send in sends))

    assert 1 == len({answer.message_id for answer in answers})
    assert 1 == (await services.store.messages(MessageQuery(visible=EVERYTHING))).total


async def test_reusing_an_idempotency_key_for_another_mail_is_a_conflict(
    services: Services, inbox: Inbox
) -> None:
    await services.store.record_send(await a_send(services, inbox, idempotency_key="k"))
    other = await a_send(services, inbox, idempotency_key="k", payload=b"other")

    with pytest.raises(Conflict, match="idempotency key k"):
        await services.store.record_send(other)


async def test_the_same_mail_within_minutes_is_recognised_as_duplicate(
    services: Services, inbox: Inbox
) -> None:
    first = await services.store.record_send(await a_send(services, inbox))

    again = await services.store.record_send(await a_send(services, inbox))
    wanted = await services.store.record_send(await a_send(services, inbox, allow_duplicate=True))
    by_other = await services.store.record_send(await a_send(services, inbox, caller="key_2"))

    assert (first.message_id, True) == (again.message_id, again.deduplicated)
    assert 3 == len({first.message_id, wanted.message_id, by_other.message_id})


async def test_a_failed_mail_may_be_sent_again(services: Services, inbox: Inbox) -> None:
    sends = [await a_send(services, inbox) for _ in range(3)]
    failed = dataclasses.replace(
        sends[0].message, recipients=(Recipient("x@example.com", "failed", "no such inbox"),)
    )

    first = await services.store.record_send(dataclasses.replace(sends[0], message=failed))
    second = await services.store.record_send(sends[1])
    third = await services.store.record_send(sends[2])

    assert (None, True) == (second.deduplicated, third.deduplicated)
    assert first.message_id != second.message_id == third.message_id


async def test_a_repeated_send_says_if_its_message_is_gone(
    services: Services, inbox: Inbox
) -> None:
    sends = [await a_send(services, inbox, idempotency_key="k") for _ in range(2)]
    first = await services.store.record_send(sends[0])
    await services.store.remove_message(first.message_id, EVERYTHING)
    again = await services.store.record_send(sends[1])

    assert (first.message_id, ("its message was removed since",)) == (
        again.message_id,
        again.warnings,
    )


async def test_after_ten_minutes_the_same_mail_is_a_new_one(
    services: Services, inbox: Inbox
) -> None:
    first = await services.store.record_send(await a_send(services, inbox))
    send = await a_send(services, inbox)
    late = dataclasses.replace(send.message, received_at=NOW + timedelta(minutes=11))

    second = await services.store.record_send(dataclasses.replace(send, message=late))

    assert first.message_id != second.message_id


async def test_the_hourly_limit_is_exact_and_has_a_retry_after(
    services: Services, inbox: Inbox
) -> None:
    for number in range(3):
        payload = f"{number}".encode()
        await services.store.record_send(
            await a_send(services, inbox, payload=payload, max_per_hour=3)
        )

    with pytest.raises(RateLimited) as caught:
        await services.store.record_send(
            await a_send(services, inbox, payload=b"x", max_per_hour=3)
        )

    assert 3600 == caught.value.retry_after
    assert 3 == (await services.store.messages(MessageQuery(visible=EVERYTHING))).total


async def test_one_automatic_answer_per_thread_and_day(services: Services, inbox: Inbox) -> None:
    root = await services.store.record_send(await a_send(services, inbox, payload=b"root"))

    async def answer(number: int, after: timedelta = timedelta(0)) -> NewSend:
        send = await a_send(services, inbox, payload=f"{number}".encode())
        message = dataclasses.replace(
            send.message,
            internet_message_id=f"{number}@example.com",
            thread_id=root.thread_id,
            auto_answered=("ana@example.com",),
            received_at=NOW + after,
        )
        return dataclasses.replace(send, message=message)

    sends = [await answer(number) for number in range(5)]
    told = await asyncio.gather(*map(services.store.record_send, sends), return_exceptions=True)
    with pytest.raises(Conflict, match="within a day"):
        await services.store.refuse_second_answer(root.thread_id, ["ANA@example.com"], NOW)
    await services.store.refuse_second_answer(root.thread_id, ["bo@example.com"], NOW)
    await services.store.record_send(await answer(5, timedelta(days=1)))

    assert 4 == sum(isinstance(one, Conflict) for one in told)


async def test_a_worker_without_a_relay_claims_only_local_mail(
    services: Services, inbox: Inbox
) -> None:
    send = await a_send(services, inbox)
    queued = (Recipient("x@example.com", "queued"),)
    message = dataclasses.replace(send.message, recipients=queued)
    await services.store.record_send(dataclasses.replace(send, message=message))
    lease = {"now": NOW, "until": NOW + timedelta(minutes=1), "free": SOME, "max_per_domain": 9}

    assert await services.store.next_mail_at(["local", "account"]) is None
    poor = {**lease, "free": {"local": 5, "account": 5}}
    assert () == (await services.store.claim_mail("poor", **poor)).jobs
    assert NOW == await services.store.next_mail_at(["relay"])
    assert 1 == len((await services.store.claim_mail("rich", **lease)).jobs)


async def test_only_the_senders_copy_has_bcc(services: Services, inbox: Inbox) -> None:
    sent = await services.store.record_send(await a_send(services, inbox))

    message = await services.store.message(sent.message_id, EVERYTHING)

    assert message is not None
    assert ("hidden@example.com",) == message.bcc_addresses
    assert ("captured", ("Sent",)) == (message.status, message.mailboxes)


async def test_sends_of_the_owners_agent_are_recognised_after_an_upgrade(
    services: Services, inbox: Inbox
) -> None:
    old = await a_send(services, inbox, caller="owner", idempotency_key="k")
    first = await services.store.record_send(old)
    await services.store.record_send(
        await a_send(services, inbox, caller="owner", payload=b"by hand")
    )
    engine = services.store.engine  # type: ignore[attr-defined]
    await engine.write(lambda tx: [tx.run(statement) for statement in SENDS_OF_AGENT])

    again = await services.store.record_send(dataclasses.replace(old, caller="agent"))
    new = await a_send(services, inbox, caller="agent", payload=b"new", max_per_hour=1)
    other = await services.store.record_send(new)

    assert first.message_id == again.message_id
    assert other.message_id != first.message_id


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize(
    ("caller", "minutes", "is_known"),
    [("agent", 0, True), ("agent", 9, True), ("agent", 11, False), ("key_1", 0, False)],
)
async def test_repeated_sends_across_an_upgrade_are_recognised(
    services: Services, inbox: Inbox, key: str | None, caller: str, minutes: int, is_known: bool
) -> None:
    old = await a_send(services, inbox, caller="owner", idempotency_key=key)
    first = await services.store.record_send(old)
    engine = services.store.engine  # type: ignore[attr-defined]
    await engine.write(lambda tx: [tx.run(statement) for statement in SENDS_OF_AGENT])

    send = await a_send(services, inbox, caller=caller, max_per_hour=1)
    later = dataclasses.replace(send.message, received_at=NOW + timedelta(minutes=minutes))
    again = await services.store.record_send(dataclasses.replace(send, message=later))
    wanted = await a_send(services, inbox, caller="agent", payload=b"new", max_per_hour=2)
    other = await services.store.record_send(wanted)

    assert (is_known, is_known or None) == (
        first.message_id == again.message_id,
        again.deduplicated,
    )
    assert other.message_id not in (first.message_id, again.message_id)
