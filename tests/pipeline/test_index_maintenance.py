"""Background compaction of the search index."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from unittest.mock import AsyncMock, patch

import pytest

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.operations.inboxes import create_inbox
from postroom.pipeline.ingest import Arrival, receive_many
from postroom.pipeline.maintenance import (
    COMPACT_STEPS,
    background_tasks,
    compact_some,
    run_maintenance,
)
from postroom.pipeline.services import heartbeat
from postroom.store.search.index import BULK_POLICY, DEFAULT_POLICY

NOW, LATER = timedelta(0), timedelta(hours=1)


@pytest.mark.parametrize(
    ("more", "steps"), [([True] * 99, COMPACT_STEPS), ([True, False], 2), ([False], 1)]
)
async def test_the_work_of_compaction_is_bounded_by_the_mail(
    outbox_ctx: RequestContext, more: list[bool], steps: int
) -> None:
    with patch.object(
        type(outbox_ctx.store), "compact_index", AsyncMock(side_effect=more)
    ) as slow_compaction:
        await compact_some(outbox_ctx)

    assert steps == slow_compaction.await_count


async def test_an_import_indexes_more_at_once_only_while_no_server_runs(
    outbox_ctx: RequestContext,
) -> None:
    outbox_ctx = replace(
        outbox_ctx, clock=partial(datetime.now, UTC)
    )  # so that mail arrives all the time
    inbox = await call(outbox_ctx, create_inbox, {})
    mails = [
        Arrival(b"Subject: %d\n\nHello\n" % n, inbox.id) for n in range(DEFAULT_POLICY.buffer_docs)
    ]
    await receive_many(outbox_ctx, mails)

    await compact_some(outbox_ctx, in_bulk=True)
    assert len(mails) == await buffered(outbox_ctx)

    async with heartbeat(outbox_ctx, ["serving"]):
        await compact_some(outbox_ctx, in_bulk=True)
    assert 0 == await buffered(outbox_ctx)


def test_larger_steps_are_segments_of_the_next_level() -> None:
    assert DEFAULT_POLICY.fan_out * DEFAULT_POLICY.buffer_docs == BULK_POLICY.buffer_docs


async def buffered(outbox_ctx: RequestContext) -> int:
    """The number of messages in the buffer."""
    rows = await outbox_ctx.store.engine.read(lambda tx: tx.all("SELECT 1 FROM search_buffer"))
    return len(rows)


async def test_a_compaction_does_not_wait_for_another_one(
    outbox_ctx: RequestContext,
) -> None:
    second = asyncio.Event()
    calls = 0

    async def slow_compaction(_: object) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()
        second.set()
        return False

    with patch.object(type(outbox_ctx.store), "compact_index", slow_compaction):
        at_once = [
            replace(c, first=NOW, every=LATER)
            for c in background_tasks(outbox_ctx)
            if "compact" in c.name
        ]
        keeping = asyncio.create_task(run_maintenance(at_once))
        await asyncio.wait_for(second.wait(), 10)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    assert 2 == calls
