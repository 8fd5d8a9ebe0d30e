"""Mail that cannot go out now is tried again later, neither too often nor for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.operations.outgoing.outbox import list_outbox
from postroom.pipeline.outbox import wait_after
from tests.mails import SOME
from tests.pipeline.clock import Clock
from tests.pipeline.posting import are_out, send, statuses, types, until, working
from tests.servers.relay import relaying


async def test_who_was_deferred_is_tried_again_and_the_others_are_not(
    post: RequestContext, clock: Clock
) -> None:
    is_grey = True

    def rcpt(line: str) -> bytes:
        return b"450 4.7.1 later" if "<b@" in line and is_grey else b"250 ok"

    async with relaying({"RCPT": rcpt}) as relay, working(post, relay) as outbox:
        sent = await send(post, to=["a@x.org", "b@x.org"], wait_s=1)
        first = await statuses(post, sent)
        is_grey = False
        clock.now += timedelta(minutes=1)
        await post.store.pause_outbox(paused=False)

        async def is_out() -> bool:
            return (await statuses(post, sent))["b@x.org"] == "sent"

        await until(post, is_out)

    assert {"a@x.org": "sent", "b@x.org": "queued"} == first
    assert [["a@x.org"], ["b@x.org"]] == [mail.recipients for mail in relay.mails]
    assert outbox is not None


def test_the_waits_grow_from_a_minute_to_four_hours() -> None:
    waits = [wait_after(attempts) for attempts in range(20)]

    assert (timedelta(minutes=1), timedelta(minutes=2)) == (waits[0], waits[1])
    assert timedelta(hours=4) == max(waits)
    assert sorted(waits) == waits


async def test_after_two_days_we_give_up_and_say_so(post: RequestContext, clock: Clock) -> None:
    async with relaying({"RCPT": b"450 later"}) as relay, working(post, relay):
        sent = await send(post, wait_s=1)
        clock.now += timedelta(hours=48)
        await post.store.pause_outbox(paused=False)

        async def is_over() -> bool:
            return "bounced" in (await statuses(post, sent)).values()

        await until(post, is_over)

    assert "message.bounced" in await types(post, sent)
    assert [] == relay.mails


async def test_mail_that_was_held_back_for_days_is_tried_as_often_as_any(
    post: RequestContext, clock: Clock
) -> None:
    is_grey = True

    def rcpt(_: str) -> bytes:
        return b"450 4.7.1 later" if is_grey else b"250 ok"

    await post.store.pause_outbox(paused=True)
    sent = await send(post)
    clock.now += timedelta(hours=49)
    async with relaying({"RCPT": rcpt}) as relay, working(post, relay):
        await post.store.pause_outbox(paused=False)

        async def is_deferred() -> bool:
            return "message.deferred" in await types(post, sent)

        await until(post, is_deferred)
        is_grey = False
        clock.now += timedelta(minutes=1)
        await post.store.pause_outbox(paused=False)
        await until(post, lambda: are_out(post, [sent]))

    assert 1 == len(relay.mails)


async def test_a_domain_gets_its_share_of_the_hour_and_the_rest_waits(
    post: RequestContext, clock: Clock
) -> None:
    few = replace(post, limits=replace(post.limits, domain_sends_per_hour=2))
    sent = [await send(few, subject=f"Mail {number}") for number in range(4)]
    other = await send(few, to=["bo@example.org"])
    async with relaying() as relay:
        async with working(few, relay), working(few, relay):
            await until(few, lambda: are_out(few, [*sent[:2], other]))
        waiting = await call(few, list_outbox, {"status": "queued"})
        first = len(relay.mails)
        clock.now += timedelta(hours=1)
        async with working(few, relay):
            await until(few, lambda: are_out(few, sent))

    assert (3, 5) == (first, len(relay.mails))
    assert [clock.now] * 2 == [entry.next_attempt_at for entry in waiting.results]


async def test_a_mail_that_is_given_back_does_not_count_for_its_domain(
    post: RequestContext, clock: Clock
) -> None:
    sent = await send(post)
    few = {"free": SOME, "max_per_domain": 1}
    until = clock() + timedelta(seconds=30)
    first = await post.store.claim_mail("one", now=clock(), until=until, **few)
    await post.store.release_mail(first.jobs[0], clock() + timedelta(seconds=10))
    too_early = await post.store.claim_mail("two", now=clock(), until=until, **few)
    clock.now += timedelta(seconds=10)
    again = await post.store.claim_mail("two", now=clock(), until=until, **few)

    assert ((), [sent.message_id]) == (too_early.jobs, [job.message_id for job in again.jobs])


@pytest.mark.parametrize("jump", [timedelta(days=-365), timedelta(days=365)])
async def test_a_clock_that_is_set_neither_loses_nor_doubles_mail(
    post: RequestContext, clock: Clock, jump: timedelta
) -> None:
    async with relaying({"RCPT": b"450 later"}) as relay, working(post, relay):
        sent = await send(post, wait_s=1)
        relay.script = {}
        clock.now += jump
        await post.store.pause_outbox(paused=False)

        async def is_out() -> bool:
            return (await statuses(post, sent)) == {"ana@example.com": "sent"}

        await until(post, is_out)

    assert 1 == len(relay.mails)
