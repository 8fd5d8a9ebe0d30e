"""Concurrent merge jobs: no two take the same messages, short jobs do not wait for long ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.search.compaction.jobs import (
    Job,
    LeaseLost,
    MergePolicy,
    claim,
    renew,
)
from postroom.store.search.index import compact, purge, reset_index
from postroom.store.search.segments.segment import BUILDING, segment_numbers
from tests.unit.store.search.scenario import SMALL_POLICY, SearchScenario
from tests.unit.store.search.test_merging import IS_SWEPT, InterruptedEngine
from tests.unit.store.search.test_results import wrong_results

pytestmark = pytest.mark.one_python

NEVER_IDLE = 1 << 40
SEGMENTS_ONLY = MergePolicy(buffer_docs=1_000, fan_out=2, max_docs=10_000, idle_s=NEVER_IDLE)
BUFFER_ONLY = MergePolicy(buffer_docs=20, fan_out=99, max_docs=100, idle_s=NEVER_IDLE)
BOTH = MergePolicy(buffer_docs=20, fan_out=2, max_docs=10_000, idle_s=NEVER_IDLE)


@pytest.fixture
async def scenario(tmp_path: Path) -> AsyncIterator[SearchScenario]:
    scenario = await SearchScenario.open(tmp_path, seed=5)
    yield scenario
    await scenario.engine.close()


async def claimed(scenario: SearchScenario, policy: MergePolicy) -> Job | None:
    return await scenario.engine.write(lambda tx: claim(tx, "somebody", policy, int(time.time())))


async def make_segments(scenario: SearchScenario, *sizes: int) -> None:
    for size in sizes:
        await scenario.arrive(size)
        await scenario.merge(MergePolicy(buffer_docs=size, fan_out=99, idle_s=NEVER_IDLE))


async def test_the_buffer_is_merged_while_segments_are_merged(scenario: SearchScenario) -> None:
    await make_segments(scenario, 30, 30)
    segments = await claimed(scenario, BOTH)
    await scenario.arrive(25)

    buffer, nothing = [await claimed(scenario, BOTH) for _ in range(2)]

    assert segments is not None
    assert (2, 0) == (len(segments.sources), len(segments.messages))
    assert buffer is not None
    assert (0, 25) == (len(buffer.sources), len(buffer.messages))
    assert nothing is None


async def test_the_buffer_is_merged_before_segments(scenario: SearchScenario) -> None:
    await make_segments(scenario, 30, 30)
    await scenario.arrive(25)

    buffer, segments = [await claimed(scenario, BOTH) for _ in range(2)]

    assert buffer is not None
    assert 25 == len(buffer.messages)
    assert segments is not None
    assert 2 == len(segments.sources)


async def test_a_buffer_too_large_for_one_job_waits_until_dropped_rows_are_deleted(
    scenario: SearchScenario,
) -> None:
    await make_segments(scenario, 30)
    await scenario.engine.write(reset_index)
    await scenario.arrive(31)

    assert await claimed(scenario, BUFFER_ONLY) is None
    await scenario.merge(BUFFER_ONLY)

    left = await scenario.engine.read(lambda tx: tx.all("SELECT * FROM search_buffer"))
    assert len(left) < BUFFER_ONLY.buffer_docs
    assert () == await scenario.store.problems()


async def test_a_buffer_job_beside_another_job_takes_a_limited_number_of_messages(
    scenario: SearchScenario,
) -> None:
    await make_segments(scenario, 30, 30)
    await claimed(scenario, BOTH)
    await scenario.arrive(200)

    jobs = [await claimed(scenario, BOTH) for _ in range(3)]

    assert [160, 40] == [len(job.messages) for job in jobs if job]


async def test_two_jobs_take_different_messages_of_the_buffer(scenario: SearchScenario) -> None:
    await scenario.arrive(120)

    jobs = [await claimed(scenario, BUFFER_ONLY) for _ in range(4)]

    assert [50, 50, 20] == [len(job.messages) for job in jobs if job]
    assert 120 == len({number for job in jobs if job for number in job.messages})


@pytest.mark.parametrize(("first", "second", "taken"), [(200, 50, 2), (200, 60, 0), (50, 50, 0)])
async def test_much_smaller_segments_are_merged_beside_a_running_merge(
    scenario: SearchScenario, first: int, second: int, taken: int
) -> None:
    await make_segments(scenario, first, first)
    large = await claimed(scenario, SEGMENTS_ONLY)
    await make_segments(scenario, second, second)

    small = await claimed(scenario, SEGMENTS_ONLY)

    assert large is not None
    assert taken == (len(small.sources) if small else 0)
    assert not small or not {*large.sources} & {*small.sources}


async def test_segments_are_merged_beside_several_merges_if_much_smaller_than_each(
    scenario: SearchScenario,
) -> None:
    taken = list[int]()
    for size in (400, 100, 30, 20):
        await make_segments(scenario, size, size)
        job = await claimed(scenario, SEGMENTS_ONLY)
        taken.append(len(job.sources) if job else 0)

    assert [2, 2, 0, 0] == taken


@pytest.mark.parametrize("seed", [1, 2])
async def test_concurrent_jobs_lose_nothing(tmp_path: Path, seed: int) -> None:
    scenario = await SearchScenario.open(tmp_path, seed)
    wrong, beside = list[object](), 0

    async def happens() -> None:
        nonlocal beside
        await scenario.arrive(25)
        await scenario.change(6)
        before = await scenario.engine.read(segment_numbers)
        busy = await scenario.engine.read(partial(segment_numbers, state=BUILDING))
        await compact(scenario.engine, SMALL_POLICY)
        made = {*await scenario.engine.read(segment_numbers)} - {*before}
        beside += bool(busy and made)

    for _ in range(15):
        await scenario.arrive(10)
        await compact(InterruptedEngine(scenario.engine, happens), SMALL_POLICY)
        wrong += await wrong_results(scenario, 15)
    await scenario.merge()
    wrong += await wrong_results(scenario, 40)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert beside > 5
    assert [] == wrong
    assert () == problems


async def test_removing_an_inbox_abandons_all_jobs(scenario: SearchScenario) -> None:
    await make_segments(scenario, 30, 30)
    await scenario.arrive(25)
    jobs = [await claimed(scenario, BOTH) for _ in range(2)]

    await scenario.store.remove_inbox(scenario.inboxes[0].id, EVERYTHING, force=True)

    for job in jobs:
        assert job is not None
        with pytest.raises(LeaseLost):
            await scenario.engine.write(lambda tx, job=job: renew(tx, job, int(time.time())))


async def test_the_buffer_is_merged_before_dropped_rows_are_deleted(
    scenario: SearchScenario,
) -> None:
    await make_segments(scenario, 30, 30)
    while not await scenario.engine.read(lambda tx: tx.one(IS_SWEPT)):
        await compact(scenario.engine, SEGMENTS_ONLY)
    await scenario.arrive(25)

    assert await compact(scenario.engine, BOTH)

    assert await scenario.engine.read(lambda tx: tx.one(IS_SWEPT))
    assert [] == await scenario.engine.read(lambda tx: tx.all("SELECT * FROM search_buffer"))


async def test_a_purge_ends_while_messages_are_removed(scenario: SearchScenario) -> None:
    await make_segments(scenario, 200)
    is_over = False

    async def remove() -> None:
        while not is_over and scenario.ids:
            await scenario.store.remove_message(scenario.ids.pop(), EVERYTHING)
            await asyncio.sleep(0.05)

    removing = asyncio.create_task(remove())
    await scenario.store.remove_message(scenario.ids.pop(), EVERYTHING)
    await purge(scenario.engine)
    is_over, left = True, len(scenario.ids)
    await removing

    assert left > 0
