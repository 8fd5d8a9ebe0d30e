"""What happens by itself to the search index."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from unittest.mock import AsyncMock, patch

import pytest

from postroom.calls.context import RequestContext
from postroom.pipeline.maintenance import (
    COMPACT_STEPS,
    background_tasks,
    compact_some,
    run_maintenance,
)

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
