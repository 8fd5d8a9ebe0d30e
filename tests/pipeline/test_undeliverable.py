"""Mail that no process can transmit says why it waits, and bounces after two days."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from postroom.calls.context import RequestContext
from postroom.model.mail.sending import Sent
from postroom.model.view import EVERYTHING
from postroom.pipeline.outbox import NO_RELAY, Outbox
from postroom.pipeline.services import heartbeat
from tests.pipeline.clock import Clock
from tests.pipeline.outbox_helpers import (
    relay_worker,
    send,
    statuses,
    types,
    until,
    worker_without_relay,
)
from tests.servers.relay import relaying


async def details(ctx: RequestContext, sent: Sent) -> list[str | None]:
    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    return [recipient.detail for recipient in message.recipients or ()]


async def test_mail_without_a_relay_says_so_and_bounces_after_two_days(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    poor = replace(outbox_ctx, has_relay=False)
    async with heartbeat(outbox_ctx, ["relaying"]):
        sent = await send(poor)
    async with worker_without_relay(poor):

        async def is_told() -> bool:
            return [NO_RELAY] == await details(outbox_ctx, sent)

        await until(outbox_ctx, is_told)
        assert {"ana@example.com": "queued"} == await statuses(outbox_ctx, sent)
    clock.now += timedelta(hours=48)
    async with worker_without_relay(poor):

        async def is_over() -> bool:
            return {"ana@example.com": "bounced"} == await statuses(outbox_ctx, sent)

        await until(outbox_ctx, is_over)
        async with asyncio.timeout(50):
            while not outbox_ctx.counts["outbox_bounced"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    assert [f"abandoned after 48 hours: {NO_RELAY}"] == await details(outbox_ctx, sent)
    assert 1 == outbox_ctx.counts["outbox_bounced"]


async def test_a_worker_without_a_relay_reports_nothing_while_another_has_one(
    outbox_ctx: RequestContext,
) -> None:
    poor = replace(outbox_ctx, has_relay=False)
    async with heartbeat(outbox_ctx, ["relaying"]):
        sent = await send(poor)
        await Outbox(poor, None).check_unrelayed()

    assert (0, [None]) == (outbox_ctx.counts["outbox_bounced"], await details(outbox_ctx, sent))


async def test_waiting_for_a_relay_does_not_use_up_attempts(
    outbox_ctx: RequestContext, clock: Clock
) -> None:
    poor = replace(outbox_ctx, has_relay=False)
    async with heartbeat(outbox_ctx, ["relaying"]):
        sent = await send(poor)
    await Outbox(poor, None).check_unrelayed()
    assert [NO_RELAY] == await details(outbox_ctx, sent)

    async def is_grey() -> bool:
        return ["450 4.7.1 later"] == [str(d)[-15:] for d in await details(outbox_ctx, sent)]

    async def is_over() -> bool:
        return "message.bounced" in await types(outbox_ctx, sent)

    async with relaying({"RCPT": b"450 4.7.1 later"}) as relay, relay_worker(outbox_ctx, relay):
        clock.now += timedelta(hours=72)
        await outbox_ctx.store.pause_outbox(paused=False)
        await until(outbox_ctx, is_grey)
        assert {"ana@example.com": "queued"} == await statuses(outbox_ctx, sent)
        clock.now += timedelta(hours=48)
        await outbox_ctx.store.pause_outbox(paused=False)
        await until(outbox_ctx, is_over)
