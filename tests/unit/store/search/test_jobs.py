"""Several jobs at once: none takes what another has, and short ones do not wait for long ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.store.search.choice import Sizes
from postroom.store.search.jobs import (
    Job,
    Overtaken,
    all_numbers,
    building_numbers,
    claim,
    rebuild,
    renew,
)
from postroom.store.search.merging import merge_once, purge
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
    segments = await claimed(world, BOTH)
    await world.arrive(25)

    tail, nothing = [await claimed(world, BOTH) for _ in range(2)]

    assert segments is not None
    assert (2, 0) == (len(segments.sources), len(segments.messages))
    assert tail is not None
    assert (0, 25) == (len(tail.sources), len(tail.messages))
    assert nothing is None


async def test_what_came_in_is_merged_before_segments_are(world: World) -> None:
    await make_segments(world, 30, 30)
    await world.arrive(25)

    tail, segments = [await claimed(world, BOTH) for _ in range(2)]

    assert tail is not None
    assert 25 == len(tail.messages)
    assert segments is not None
    assert 2 == len(segments.sources)


async def test_a_tail_that_is_too_much_for_one_job_waits_for_what_is_to_be_swept(
    world: World,
) -> None:
    await make_segments(world, 30)
    await world.engine.write(rebuild)
    await world.arrive(31)

    assert await claimed(world, TAIL_ONLY) is None
    await world.merge(TAIL_ONLY)

    left = await world.engine.read(lambda tx: tx.all("SELECT * FROM search_tail"))
    assert len(left) < TAIL_ONLY.tail
    assert () == await world.store.problems()


async def test_beside_another_job_one_of_the_tail_takes_a_few_times_what_makes_it_due(
    world: World,
) -> None:
    await make_segments(world, 30, 30)
    await claimed(world, BOTH)
    await world.arrive(200)

    jobs = [await claimed(world, BOTH) for _ in range(3)]

    assert [160, 40] == [len(job.messages) for job in jobs if job]


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


async def test_segments_are_merged_beside_several_if_they_are_much_smaller_than_each(
    world: World,
) -> None:
    taken = list[int]()
    for size in (400, 100, 30, 20):
        await make_segments(world, size, size)
        job = await claimed(world, SEGMENTS_ONLY)
        taken.append(len(job.sources) if job else 0)

    assert [2, 2, 0, 0] == taken


@pytest.mark.parametrize("seed", [1, 2])
async def test_jobs_beside_each_other_lose_nothing(tmp_path: Path, seed: int) -> None:
    world = await World.open(tmp_path, seed)
    wrong, beside = list[object](), 0

    async def happens() -> None:
        nonlocal beside
        await world.arrive(25)
        await world.change(6)
        before, busy = [await world.engine.read(of) for of in (all_numbers, building_numbers)]
        await merge_once(world.engine, SMALL_SIZES)
        made = {*await world.engine.read(all_numbers)} - {*before}
        beside += bool(busy and made)

    for _ in range(15):
        await world.arrive(10)
        await merge_once(Interrupted(world.engine, happens), SMALL_SIZES)
        wrong += await wrong_answers(world, 15)
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


async def test_a_purge_ends_while_messages_are_removed(world: World) -> None:
    await make_segments(world, 200)
    is_over = False

    async def remove() -> None:
        while not is_over and world.ids:
            await world.store.remove_message(world.ids.pop(), None)
            await asyncio.sleep(0.05)

    removing = asyncio.create_task(remove())
    await world.store.remove_message(world.ids.pop(), None)
    await purge(world.engine)
    is_over, left = True, len(world.ids)
    await removing

    assert left > 0
