"""Send mail, run outbox workers, and read statuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.event import EventQuery
from postroom.model.mail.sending import Sent
from postroom.model.view import EVERYTHING
from postroom.operations.outgoing.sending import send_message
from postroom.pipeline.outbox import Outbox
from postroom.providers.smtp_relay import SmtpRelay, parse_relay_url
from tests.servers.relay import Relay

OUTGOING = {"to": ["ana@example.com"], "subject": "Hello", "body_text": "Good morning."}


@asynccontextmanager
async def relay_worker(ctx: RequestContext, relay: Relay, **options: Any) -> AsyncIterator[Outbox]:
    sender = SmtpRelay(parse_relay_url(relay.url), "postroom.localhost", response_s=2, **options)
    async with running_worker(Outbox(ctx, sender)) as outbox:
        yield outbox


@asynccontextmanager
async def running_worker(outbox: Outbox) -> AsyncIterator[Outbox]:
    """Run an outbox worker while the block runs."""
    task = asyncio.create_task(outbox.run())
    try:
        yield outbox
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def send(ctx: RequestContext, **changes: Any) -> Sent:
    return await call(ctx, send_message, {**OUTGOING, **changes})


async def statuses(ctx: RequestContext, sent: Sent) -> dict[str, str]:
    message = await ctx.store.message(sent.message_id, EVERYTHING)
    assert message is not None
    return {r.address: r.status for r in message.recipients or ()}


async def types(ctx: RequestContext, sent: Sent) -> list[str]:
    found = await ctx.store.events(EventQuery(visible=EVERYTHING, message_id=sent.message_id))
    return [event.type for event in found.rows]


async def until(ctx: RequestContext, is_so: Callable[[], Any]) -> None:
    """Wait until a condition holds, with a time limit."""
    notifier = ctx.store.notifier
    async with asyncio.timeout(50):
        position = notifier.position("events")
        while not await is_so():
            position = await notifier.wait("events", position)


@asynccontextmanager
async def worker_without_relay(ctx: RequestContext) -> AsyncIterator[None]:
    """Run an outbox worker without a relay."""
    task = asyncio.create_task(Outbox(ctx, None).run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def all_sent(ctx: RequestContext, sent: list[Sent]) -> bool:
    found = [await statuses(ctx, one) for one in sent]
    return all(status == "sent" for of_one in found for status in of_one.values())
