"""Background work on the search index."""

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
async def test_a_batch_of_mail_gives_rise_to_so_much_work_and_no_more(
    post: RequestContext, more: list[bool], steps: int
) -> None:
    with patch.object(type(post.store), "compact_index", AsyncMock(side_effect=more)) as tidy:
        await compact_some(post)

    assert steps == tidy.await_count


async def test_an_import_indexes_more_at_once_only_while_no_server_runs(
    post: RequestContext,
) -> None:
    post = replace(post, clock=partial(datetime.now, UTC))  # so that mail arrives all the time
    inbox = await call(post, create_inbox, {})
    mails = [
        Arrival(b"Subject: %d\n\nHello\n" % n, inbox.id) for n in range(DEFAULT_POLICY.buffer_docs)
    ]
    await receive_many(post, mails)

    await compact_some(post, in_bulk=True)
    assert len(mails) == await buffered(post)

    async with heartbeat(post, ["serving"]):
        await compact_some(post, in_bulk=True)
    assert 0 == await buffered(post)


def test_larger_steps_are_segments_of_the_next_level() -> None:
    assert DEFAULT_POLICY.fan_out * DEFAULT_POLICY.buffer_docs == BULK_POLICY.buffer_docs


async def buffered(post: RequestContext) -> int:
    """How many messages are in no segment yet."""
    rows = await post.store.engine.read(lambda tx: tx.all("SELECT 1 FROM search_buffer"))
    return len(rows)


async def test_one_who_tidies_does_not_wait_for_another_who_takes_long(
    post: RequestContext,
) -> None:
    second = asyncio.Event()
    calls = 0

    async def tidy(_: object) -> bool:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()
        second.set()
        return False

    with patch.object(type(post.store), "compact_index", tidy):
        at_once = [
            replace(c, first=NOW, every=LATER)
            for c in background_tasks(post)
            if "compact" in c.name
        ]
        keeping = asyncio.create_task(run_maintenance(at_once))
        await asyncio.wait_for(second.wait(), 10)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    assert 2 == calls
