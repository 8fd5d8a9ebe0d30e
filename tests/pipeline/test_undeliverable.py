"""Mail that waits for a relay that nobody has says so, and does not wait for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from postroom.calls.context import RequestContext
from postroom.model.sending import Sent
from postroom.model.view import EVERYTHING
from postroom.pipeline.outbox import NO_RELAY, Outbox
from postroom.pipeline.services import heartbeat
from tests.pipeline.clock import Clock
from tests.pipeline.posting import send, statuses, types, unable, until, working
from tests.servers.relay import relaying


async def details(ctx: RequestContext, sent: Sent) -> list[str | None]:
    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    return [recipient.detail for recipient in message.recipients or ()]


async def test_mail_that_nobody_has_the_relay_for_says_so_and_bounces_after_two_days(
    post: RequestContext, clock: Clock
) -> None:
    poor = replace(post, has_relay=False)
    async with heartbeat(post, ["relaying"]):
        sent = await send(poor)
    async with unable(poor):

        async def is_told() -> bool:
            return [NO_RELAY] == await details(post, sent)

        await until(post, is_told)
        assert {"ana@example.com": "queued"} == await statuses(post, sent)
    clock.now += timedelta(hours=48)
    async with unable(poor):

        async def is_over() -> bool:
            return {"ana@example.com": "bounced"} == await statuses(post, sent)

        await until(post, is_over)
        async with asyncio.timeout(50):
            while not post.counts["outbox_bounced"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    assert [f"given up after 48 hours: {NO_RELAY}"] == await details(post, sent)
    assert 1 == post.counts["outbox_bounced"]


async def test_a_worker_without_a_relay_says_nothing_while_another_has_one(
    post: RequestContext,
) -> None:
    poor = replace(post, has_relay=False)
    async with heartbeat(post, ["relaying"]):
        sent = await send(poor)
        await Outbox(poor, None).check_unrelayed()

    assert (0, [None]) == (post.counts["outbox_bounced"], await details(post, sent))


async def test_how_long_mail_waited_for_a_relay_takes_no_attempt_from_it(
    post: RequestContext, clock: Clock
) -> None:
    poor = replace(post, has_relay=False)
    async with heartbeat(post, ["relaying"]):
        sent = await send(poor)
    await Outbox(poor, None).check_unrelayed()
    assert [NO_RELAY] == await details(post, sent)

    async def is_grey() -> bool:
        return ["450 4.7.1 later"] == [str(d)[-15:] for d in await details(post, sent)]

    async def is_over() -> bool:
        return "message.bounced" in await types(post, sent)

    async with relaying({"RCPT": b"450 4.7.1 later"}) as relay, working(post, relay):
        clock.now += timedelta(hours=72)
        await post.store.pause_outbox(paused=False)
        await until(post, is_grey)
        assert {"ana@example.com": "queued"} == await statuses(post, sent)
        clock.now += timedelta(hours=48)
        await post.store.pause_outbox(paused=False)
        await until(post, is_over)
