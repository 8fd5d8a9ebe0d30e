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
from tests.unit.store.search.test_merging import IS_SWEPT, Interrupted
from tests.unit.store.search.test_results import wrong_results
from tests.unit.store.search.world import SMALL_POLICY, World

pytestmark = pytest.mark.one_python

NEVER_IDLE = 1 << 40
SEGMENTS_ONLY = MergePolicy(buffer_docs=1_000, fan_out=2, max_docs=10_000, idle_s=NEVER_IDLE)
BUFFER_ONLY = MergePolicy(buffer_docs=20, fan_out=99, max_docs=100, idle_s=NEVER_IDLE)
BOTH = MergePolicy(buffer_docs=20, fan_out=2, max_docs=10_000, idle_s=NEVER_IDLE)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = await World.open(tmp_path, seed=5)
    yield world
    await world.engine.close()


async def claimed(world: World, policy: MergePolicy) -> Job | None:
    return await world.engine.write(lambda tx: claim(tx, "somebody", policy, int(time.time())))


async def make_segments(world: World, *sizes: int) -> None:
    for size in sizes:
        await world.arrive(size)
        await world.merge(MergePolicy(buffer_docs=size, fan_out=99, idle_s=NEVER_IDLE))


async def test_the_buffer_is_merged_while_segments_are_merged(world: World) -> None:
    await make_segments(world, 30, 30)
    segments = await claimed(world, BOTH)
    await world.arrive(25)

    buffer, nothing = [await claimed(world, BOTH) for _ in range(2)]

    assert segments is not None
    assert (2, 0) == (len(segments.sources), len(segments.messages))
    assert buffer is not None
    assert (0, 25) == (len(buffer.sources), len(buffer.messages))
    assert nothing is None


async def test_the_buffer_is_merged_before_segments(world: World) -> None:
    await make_segments(world, 30, 30)
    await world.arrive(25)

    buffer, segments = [await claimed(world, BOTH) for _ in range(2)]

    assert buffer is not None
    assert 25 == len(buffer.messages)
    assert segments is not None
    assert 2 == len(segments.sources)


async def test_a_buffer_too_large_for_one_job_waits_until_dropped_rows_are_deleted(
    world: World,
) -> None:
    await make_segments(world, 30)
    await world.engine.write(reset_index)
    await world.arrive(31)

    assert await claimed(world, BUFFER_ONLY) is None
    await world.merge(BUFFER_ONLY)

    left = await world.engine.read(lambda tx: tx.all("SELECT * FROM search_buffer"))
    assert len(left) < BUFFER_ONLY.buffer_docs
    assert () == await world.store.problems()


async def test_a_buffer_job_beside_another_job_takes_a_limited_number_of_messages(
    world: World,
) -> None:
    await make_segments(world, 30, 30)
    await claimed(world, BOTH)
    await world.arrive(200)

    jobs = [await claimed(world, BOTH) for _ in range(3)]

    assert [160, 40] == [len(job.messages) for job in jobs if job]


async def test_two_jobs_take_different_messages_of_the_buffer(world: World) -> None:
    await world.arrive(120)

    jobs = [await claimed(world, BUFFER_ONLY) for _ in range(4)]

    assert [50, 50, 20] == [len(job.messages) for job in jobs if job]
    assert 120 == len({number for job in jobs if job for number in job.messages})


@pytest.mark.parametrize(("first", "second", "taken"), [(200, 50, 2), (200, 60, 0), (50, 50, 0)])
async def test_much_smaller_segments_are_merged_beside_a_running_merge(
    world: World, first: int, second: int, taken: int
) -> None:
    await make_segments(world, first, first)
    large = await claimed(world, SEGMENTS_ONLY)
    await make_segments(world, second, second)

    small = await claimed(world, SEGMENTS_ONLY)

    assert large is not None
    assert taken == (len(small.sources) if small else 0)
    assert not small or not {*large.sources} & {*small.sources}


async def test_segments_are_merged_beside_several_merges_if_much_smaller_than_each(
    world: World,
) -> None:
    taken = list[int]()
    for size in (400, 100, 30, 20):
        await make_segments(world, size, size)
        job = await claimed(world, SEGMENTS_ONLY)
        taken.append(len(job.sources) if job else 0)

    assert [2, 2, 0, 0] == taken


@pytest.mark.parametrize("seed", [1, 2])
async def test_concurrent_jobs_lose_nothing(tmp_path: Path, seed: int) -> None:
    world = await World.open(tmp_path, seed)
    wrong, beside = list[object](), 0

    async def happens() -> None:
        nonlocal beside
        await world.arrive(25)
        await world.change(6)
        before = await world.engine.read(segment_numbers)
        busy = await world.engine.read(partial(segment_numbers, state=BUILDING))
        await compact(world.engine, SMALL_POLICY)
        made = {*await world.engine.read(segment_numbers)} - {*before}
        beside += bool(busy and made)

    for _ in range(15):
        await world.arrive(10)
        await compact(Interrupted(world.engine, happens), SMALL_POLICY)
        wrong += await wrong_results(world, 15)
    await world.merge()
    wrong += await wrong_results(world, 40)
    problems = await world.store.problems()
    await world.engine.close()

    assert beside > 5
    assert [] == wrong
    assert () == problems


async def test_removing_an_inbox_abandons_all_jobs(world: World) -> None:
    await make_segments(world, 30, 30)
    await world.arrive(25)
    jobs = [await claimed(world, BOTH) for _ in range(2)]

    await world.store.remove_inbox(world.inboxes[0].id, EVERYTHING, force=True)

    for job in jobs:
        assert job is not None
        with pytest.raises(LeaseLost):
            await world.engine.write(lambda tx, job=job: renew(tx, job, int(time.time())))


async def test_the_buffer_is_merged_before_dropped_rows_are_deleted(world: World) -> None:
    await make_segments(world, 30, 30)
    while not await world.engine.read(lambda tx: tx.one(IS_SWEPT)):
        await compact(world.engine, SEGMENTS_ONLY)
    await world.arrive(25)

    assert await compact(world.engine, BOTH)

    assert await world.engine.read(lambda tx: tx.one(IS_SWEPT))
    assert [] == await world.engine.read(lambda tx: tx.all("SELECT * FROM search_buffer"))


async def test_a_purge_ends_while_messages_are_removed(world: World) -> None:
    await make_segments(world, 200)
    is_over = False

    async def remove() -> None:
        while not is_over and world.ids:
            await world.store.remove_message(world.ids.pop(), EVERYTHING)
            await asyncio.sleep(0.05)

    removing = asyncio.create_task(remove())
    await world.store.remove_message(world.ids.pop(), EVERYTHING)
    await purge(world.engine)
    is_over, left = True, len(world.ids)
    await removing

    assert left > 0
