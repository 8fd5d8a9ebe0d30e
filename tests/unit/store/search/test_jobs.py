"""Several jobs at once: none takes what another has, and short ones do not wait for long ones."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.store.search.choice import Sizes
from postroom.store.search.jobs import Job, Overtaken, building_numbers, claim, renew
from postroom.store.search.merging import merge_once
from tests.unit.store.search.test_answers import wrong_answers
from tests.unit.store.search.test_merging import IS_SWEPT, Interrupted
from tests.unit.store.search.world import SMALL_SIZES, World

NEVER_QUIET = 1 << 40
SEGMENTS_ONLY = Sizes(tail=1_000, fan_out=2, most=10_000, quiet_s=NEVER_QUIET)
TAIL_ONLY = Sizes(tail=20, fan_out=99, most=100, quiet_s=NEVER_QUIET)
BOTH = Sizes(tail=20, fan_out=2, most=10_000, quiet_s=NEVER_QUIET)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = await World.open(tmp_path, seed=5)
    yield world
    await world.engine.close()


async def claimed(world: World, sizes: Sizes) -> Job | None:
    return await world.engine.write(lambda tx: claim(tx, "somebody", sizes, int(time.time())))


async def make_segments(world: World, *sizes: int) -> None:
    for size in sizes:
        await world.arrive(size)
        await world.merge(Sizes(tail=size, fan_out=99, quiet_s=NEVER_QUIET))


async def test_the_tail_is_merged_while_segments_are(world: World) -> None:
    await make_segments(world, 30, 30)
    await world.arrive(25)

    segments, tail, nothing = [await claimed(world, BOTH) for _ in range(3)]

    assert segments is not None
    assert (2, 0) == (len(segments.sources), len(segments.messages))
    assert tail is not None
    assert (0, 20) == (len(tail.sources), len(tail.messages))
    assert nothing is None


async def test_each_job_takes_other_messages_of_the_tail(world: World) -> None:
    await world.arrive(120)

    jobs = [await claimed(world, TAIL_ONLY) for _ in range(4)]

    assert [50, 50, 20] == [len(job.messages) for job in jobs if job]
    assert 120 == len({number for job in jobs if job for number in job.messages})


@pytest.mark.parametrize(("first", "second", "taken"), [(200, 50, 2), (200, 60, 0), (50, 50, 0)])
async def test_other_segments_are_merged_meanwhile_if_they_are_much_smaller(
    world: World, first: int, second: int, taken: int
) -> None:
    await make_segments(world, first, first)
    large = await claimed(world, SEGMENTS_ONLY)
    await make_segments(world, second, second)

    small = await claimed(world, SEGMENTS_ONLY)

    assert large is not None
    assert taken == (len(small.sources) if small else 0)
    assert not small or not {*large.sources} & {*small.sources}


@pytest.mark.parametrize("seed", [1, 2])
async def test_jobs_beside_each_other_lose_nothing(tmp_path: Path, seed: int) -> None:
    world = await World.open(tmp_path, seed)
    wrong, beside = list[object](), 0

    async def happens() -> None:
        nonlocal beside
        await world.arrive(12)
        await world.change(6)
        busy = await world.engine.read(building_numbers)
        beside += await merge_once(world.engine, SMALL_SIZES) and bool(busy)

    for _ in range(4):
        await world.arrive(60)
        await merge_once(Interrupted(world.engine, happens), SMALL_SIZES)
        wrong += await wrong_answers(world, 40)
    await world.merge()
    wrong += await wrong_answers(world, 40)
    problems = await world.store.problems()
    await world.engine.close()

    assert beside > 5
    assert [] == wrong
    assert () == problems


async def test_an_inbox_that_goes_ends_all_jobs(world: World) -> None:
    await make_segments(world, 30, 30)
    await world.arrive(25)
    jobs = [await claimed(world, BOTH) for _ in range(2)]

    await world.store.remove_inbox(world.inboxes[0].id, None, force=True)

    for job in jobs:
        assert job is not None
        with pytest.raises(Overtaken):
            await world.engine.write(lambda tx, job=job: renew(tx, job, int(time.time())))


async def test_what_waits_is_merged_before_old_rows_are_swept(world: World) -> None:
    await make_segments(world, 30, 30)
    while not await world.engine.read(lambda tx: tx.one(IS_SWEPT)):
        await merge_once(world.engine, SEGMENTS_ONLY)
    await world.arrive(25)

    assert await merge_once(world.engine, BOTH)

    assert await world.engine.read(lambda tx: tx.one(IS_SWEPT))
    assert [] == await world.engine.read(lambda tx: tx.all("SELECT * FROM search_tail"))
