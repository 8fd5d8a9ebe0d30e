"""Sends are recorded exactly once, and no more often than their key may."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import pytest

from postroom.errors import Conflict, RateLimited
from postroom.model.inbox import Inbox
from postroom.model.message import Recipient
from postroom.model.stored import MessageQuery, NewSend
from postroom.pipeline.house import House
from tests.mails import SOME
from tests.stores.sends import NOW, a_send


async def test_one_key_is_one_mail_however_many_ask_at_once(house: House, inbox: Inbox) -> None:
    sends = [await a_send(house, inbox, idempotency_key="k") for _ in range(20)]

    answers = await asyncio.gather(*(house.store.record_send(send) for send in sends))

    assert 1 == len({answer.message_id for answer in answers})
    assert 1 == (await house.store.messages(MessageQuery())).total


async def test_a_key_for_another_mail_is_a_conflict(house: House, inbox: Inbox) -> None:
    await house.store.record_send(await a_send(house, inbox, idempotency_key="k"))
    other = await a_send(house, inbox, idempotency_key="k", payload=b"other")

    with pytest.raises(Conflict, match="idempotency key k"):
        await house.store.record_send(other)


async def test_the_same_mail_within_minutes_is_recognised_and_said(
    house: House, inbox: Inbox
) -> None:
    first = await house.store.record_send(await a_send(house, inbox))

    again = await house.store.record_send(await a_send(house, inbox))
    wanted = await house.store.record_send(await a_send(house, inbox, allow_duplicate=True))
    by_other = await house.store.record_send(await a_send(house, inbox, caller="key_2"))

    assert (first.message_id, True) == (again.message_id, again.deduplicated)
    assert 3 == len({first.message_id, wanted.message_id, by_other.message_id})


async def test_a_mail_that_nobody_got_may_be_sent_again(house: House, inbox: Inbox) -> None:
    sends = [await a_send(house, inbox) for _ in range(3)]
    failed = dataclasses.replace(
        sends[0].message, recipients=(Recipient("x@example.com", "failed", "no such inbox"),)
    )

    first = await house.store.record_send(dataclasses.replace(sends[0], message=failed))
    second = await house.store.record_send(sends[1])
    third = await house.store.record_send(sends[2])

    assert (None, True) == (second.deduplicated, third.deduplicated)
    assert first.message_id != second.message_id == third.message_id


async def test_a_repeated_send_says_if_its_message_is_gone(house: House, inbox: Inbox) -> None:
    sends = [await a_send(house, inbox, idempotency_key="k") for _ in range(2)]
    first = await house.store.record_send(sends[0])
    await house.store.remove_message(first.message_id, None)
    again = await house.store.record_send(sends[1])

    assert (first.message_id, ("its copy here was removed since",)) == (
        again.message_id,
        again.warnings,
    )


async def test_after_ten_minutes_the_same_mail_is_a_new_one(house: House, inbox: Inbox) -> None:
    first = await house.store.record_send(await a_send(house, inbox))
    send = await a_send(house, inbox)
    late = dataclasses.replace(send.message, received_at=NOW + timedelta(minutes=11))

    second = await house.store.record_send(dataclasses.replace(send, message=late))

    assert first.message_id != second.message_id


async def test_the_hourly_share_is_exact_and_says_when_to_return(
    house: House, inbox: Inbox
) -> None:
    for number in range(3):
        payload = f"{number}".encode()
        await house.store.record_send(await a_send(house, inbox, payload=payload, most_per_hour=3))

    with pytest.raises(RateLimited) as caught:
        await house.store.record_send(await a_send(house, inbox, payload=b"x", most_per_hour=3))

    assert 3600 == caught.value.retry_after
    assert 3 == (await house.store.messages(MessageQuery())).total


async def test_an_automatic_answer_in_a_thread_is_the_only_one_of_a_day(
    house: House, inbox: Inbox
) -> None:
    root = await house.store.record_send(await a_send(house, inbox, payload=b"root"))

    async def answer(number: int, after: timedelta = timedelta(0)) -> NewSend:
        send = await a_send(house, inbox, payload=f"{number}".encode())
        message = dataclasses.replace(
            send.message,
            internet_message_id=f"{number}@example.com",
            thread_id=root.thread_id,
            auto_answered=("ana@example.com",),
            received_at=NOW + after,
        )
        return dataclasses.replace(send, message=message)

    sends = [await answer(number) for number in range(5)]
    told = await asyncio.gather(*map(house.store.record_send, sends), return_exceptions=True)
    with pytest.raises(Conflict, match="within a day"):
        await house.store.refuse_second_answer(root.thread_id, ["ANA@example.com"], NOW)
    await house.store.refuse_second_answer(root.thread_id, ["bo@example.com"], NOW)
    await house.store.record_send(await answer(5, timedelta(days=1)))

    assert 4 == sum(isinstance(one, Conflict) for one in told)


async def test_who_has_no_relay_is_given_nothing_that_needs_one(house: House, inbox: Inbox) -> None:
    send = await a_send(house, inbox)
    queued = (Recipient("x@example.com", "queued"),)
    message = dataclasses.replace(send.message, recipients=queued)
    await house.store.record_send(dataclasses.replace(send, message=message))
    lease = {"now": NOW, "until": NOW + timedelta(minutes=1), "free": SOME, "most_per_domain": 9}

    assert await house.store.next_mail_at(["house", "account"]) is None
    poor = {**lease, "free": {"house": 5, "account": 5}}
    assert () == (await house.store.claim_mail("poor", **poor)).jobs
    assert NOW == await house.store.next_mail_at(["relay"])
    assert 1 == len((await house.store.claim_mail("rich", **lease)).jobs)


async def test_the_senders_copy_alone_knows_the_bcc(house: House, inbox: Inbox) -> None:
    sent = await house.store.record_send(await a_send(house, inbox))

    message = await house.store.message(sent.message_id, None)

    assert message is not None
    assert ("hidden@example.com",) == message.bcc_addresses
    assert ("captured", ("Sent",)) == (message.status, message.mailboxes)
