"""Deferred mail is retried with backoff, and given up after two days."""

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
from tests.pipeline.outbox_helpers import all_sent, relay_worker, send, statuses, types, until
from tests.servers.relay import relaying


async def test_only_deferred_recipients_are_retried(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    is_grey = True

    def rcpt(line: str) -> bytes:
        return b"450 4.7.1 later" if "<b@" in line and is_grey else b"250 ok"

    async with relaying({"RCPT": rcpt}) as relay, relay_worker(outbox_ctx, relay) as outbox:
        sent = await send(outbox_ctx, to=["a@x.org", "b@x.org"], wait_s=1)
        first = await statuses(outbox_ctx, sent)
        is_grey = False
        clock.now += timedelta(minutes=1)
        await outbox_ctx.store.pause_outbox(paused=False)

        async def is_out() -> bool:
            return (await statuses(outbox_ctx, sent))["b@x.org"] == "sent"

        await until(outbox_ctx, is_out)

    assert {"a@x.org": "sent", "b@x.org": "queued"} == first
    assert [["a@x.org"], ["b@x.org"]] == [mail.recipients for mail in relay.mails]
    assert outbox is not None


def test_retries_back_off_from_a_minute_to_four_hours() -> None:
    waits = [wait_after(attempts) for attempts in range(20)]

    assert (timedelta(minutes=1), timedelta(minutes=2)) == (waits[0], waits[1])
    assert timedelta(hours=4) == max(waits)
    assert sorted(waits) == waits


async def test_deferred_mail_bounces_after_two_days(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    async with relaying({"RCPT": b"450 later"}) as relay, relay_worker(outbox_ctx, relay):
        sent = await send(outbox_ctx, wait_s=1)
        clock.now += timedelta(hours=48)
        await outbox_ctx.store.pause_outbox(paused=False)

        async def is_over() -> bool:
            return "bounced" in (await statuses(outbox_ctx, sent)).values()

        await until(outbox_ctx, is_over)

    assert "message.bounced" in await types(outbox_ctx, sent)
    assert [] == relay.mails


async def test_paused_mail_has_all_of_its_attempts(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    is_grey = True

    def rcpt(_: str) -> bytes:
        return b"450 4.7.1 later" if is_grey else b"250 ok"

    await outbox_ctx.store.pause_outbox(paused=True)
    sent = await send(outbox_ctx)
    clock.now += timedelta(hours=49)
    async with relaying({"RCPT": rcpt}) as relay, relay_worker(outbox_ctx, relay):
        await outbox_ctx.store.pause_outbox(paused=False)

        async def is_deferred() -> bool:
            return "message.deferred" in await types(outbox_ctx, sent)

        await until(outbox_ctx, is_deferred)
        is_grey = False
        clock.now += timedelta(minutes=1)
        await outbox_ctx.store.pause_outbox(paused=False)
        await until(outbox_ctx, lambda: all_sent(outbox_ctx, [sent]))

    assert 1 == len(relay.mails)


async def test_mail_to_a_domain_is_limited_per_hour(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    few = replace(outbox_ctx, limits=replace(outbox_ctx.limits, domain_sends_per_hour=2))
    sent = [await send(few, subject=f"Mail {number}") for number in range(4)]
    other = await send(few, to=["bo@example.org"])
    async with relaying() as relay:
        async with relay_worker(few, relay), relay_worker(few, relay):
            await until(few, lambda: all_sent(few, [*sent[:2], other]))
        waiting = await call(few, list_outbox, {"status": "queued"})
        first = len(relay.mails)
        clock.now += timedelta(hours=1)
        async with relay_worker(few, relay):
            await until(few, lambda: all_sent(few, sent))

    assert (3, 5) == (first, len(relay.mails))
    assert [clock.now] * 2 == [entry.next_attempt_at for entry in waiting.results]


async def test_a_released_mail_does_not_count_for_its_domain(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    sent = await send(outbox_ctx)
    few = {"free": SOME, "max_per_domain": 1}
    until = clock() + timedelta(seconds=30)
    first = await outbox_ctx.store.claim_mail("one", now=clock(), until=until, **few)
    await outbox_ctx.store.release_mail(first.jobs[0], clock() + timedelta(seconds=10))
    too_early = await outbox_ctx.store.claim_mail("two", now=clock(), until=until, **few)
    clock.now += timedelta(seconds=10)
    again = await outbox_ctx.store.claim_mail("two", now=clock(), until=until, **few)

    assert ((), [sent.message_id]) == (too_early.jobs, [job.message_id for job in again.jobs])


@pytest.mark.parametrize("jump", [timedelta(days=-365), timedelta(days=365)])
async def test_a_clock_change_neither_loses_nor_repeats_mail(
    outbox_ctx: RequestContext, clock: Clock, jump: timedelta
) -> None:
    async with relaying({"RCPT": b"450 later"}) as relay, relay_worker(outbox_ctx, relay):
        sent = await send(outbox_ctx, wait_s=1)
        relay.script = {}
        clock.now += jump
        await outbox_ctx.store.pause_outbox(paused=False)

        async def is_out() -> bool:
            return (await statuses(outbox_ctx, sent)) == {"ana@example.com": "sent"}

        await until(outbox_ctx, is_out)

    assert 1 == len(relay.mails)
