"""Merging goes on beside everything else: changes, other processes, and sudden death."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from postroom.store.search import merging, sweeping
from postroom.store.search.choice import SIZES, Candidate, Sizes, choose_sources
from postroom.store.search.jobs import LEASE_S, claim, decayed_numbers
from postroom.store.search.merging import merge_once, purge
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.transaction import Transaction
from tests.unit.store.search.test_answers import wrong_answers
from tests.unit.store.search.world import SMALL_SIZES, START, World

T = TypeVar("T")
ALL_AT_ONCE = Sizes(tail=1)
AT_ONCE_AS_ONE = Sizes(tail=1, fan_out=2, keep_s=0, quiet_keep_s=0)
IS_SWEPT = "SELECT 1 FROM search_segments WHERE state = 2"
SETS_OF_NOTHING = """
    SELECT * FROM search_sets WHERE segment NOT IN (SELECT number FROM search_segments)
"""
LATER = float(2 * START)


class Interrupted:
    """An engine where something happens before every write."""

    def __init__(self, engine: SqliteEngine, happens: Callable[[], Awaitable[None]]) -> None:
        self._engine = engine
        self._happens = happens

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._engine.read(work)

    async def scan(self, work: Callable[[Transaction], T]) -> T:
        return await self._engine.scan(work)

    async def compute(self, work: Callable[[], T]) -> T:
        return await self._engine.compute(work)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        await self._happens()
        return await self._engine.write(work)


class Repeating(Interrupted):
    """An engine where the answer to every first attempt is lost, as on a server that restarts."""

    async def read(self, work: Callable[[Transaction], T]) -> T:
        await self._engine.read(work)
        return await self._engine.read(work)

    async def scan(self, work: Callable[[Transaction], T]) -> T:
        await self._engine.scan(work)
        return await self._engine.scan(work)


@pytest.mark.parametrize("seed", [1, 2])
async def test_what_changes_during_a_merge_is_not_lost(tmp_path: Path, seed: int) -> None:
    world = await World.open(tmp_path, seed)
    wrong = []

    async def happens() -> None:
        await world.arrive(2)
        await world.change(6)

    for _ in range(4):
        await world.arrive(60)
        await merge_once(Interrupted(world.engine, happens), SMALL_SIZES)
        wrong += await wrong_answers(world, 40)
    problems = await world.store.problems()
    await world.engine.close()

    assert [] == wrong
    assert () == problems


async def test_a_merge_that_must_read_again_loses_nothing(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 6)

    async def happens() -> None:
        await world.change(3)

    for _ in range(4):
        await world.arrive(300)
        await merge_once(Repeating(world.engine, happens), SMALL_SIZES)
    wrong = await wrong_answers(world, 60)
    problems = await world.store.problems()
    await world.engine.close()

    assert [] == wrong
    assert () == problems


async def test_a_purge_waits_for_a_merge_that_has_what_was_removed(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 3)
    await world.arrive(100)
    purges: list[asyncio.Task[None]] = []

    async def happens() -> None:
        await world.store.remove_message(world.ids[len(purges)], None)
        purges.append(asyncio.create_task(purge(world.engine)))
        await asyncio.sleep(0)

    await merge_once(Interrupted(world.engine, happens), ALL_AT_ONCE)
    await asyncio.gather(*purges)
    decayed = await world.engine.read(decayed_numbers)
    await world.engine.close()

    assert purges
    assert [] == decayed


async def test_an_inbox_that_goes_during_a_merge_is_gone(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 3)
    await world.arrive(100)
    await world.merge()
    await world.arrive(100)

    async def happens() -> None:
        await world.store.remove_inbox(world.inboxes[1].id, None, force=True)

    await merge_once(Interrupted(world.engine, happens), ALL_AT_ONCE)
    wrong = await wrong_answers(world, 60)
    await world.merge()
    wrong += await wrong_answers(world, 60)
    problems = await world.store.problems()
    await world.engine.close()

    assert [] == wrong
    assert () == problems


async def test_whoever_was_thought_dead_changes_nothing_when_it_comes_back(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 4)
    await world.arrive(150)
    has_overtaken = False

    async def happens() -> None:
        nonlocal has_overtaken
        row = await world.engine.read(lambda tx: tx.one("SELECT 1 FROM search_rows"))
        if row and not has_overtaken:
            has_overtaken = True
            while await merge_once(world.engine, ALL_AT_ONCE, lambda: LATER):
                pass

    finished = await merge_once(Interrupted(world.engine, happens), ALL_AT_ONCE)
    wrong = await wrong_answers(world, 60)
    problems = await world.store.problems()
    await world.engine.close()

    assert has_overtaken
    assert not finished
    assert [] == wrong
    assert () == problems


async def test_a_job_is_left_alone_until_its_time_is_over(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 5)
    await world.arrive(30)
    job = await world.engine.write(lambda tx: claim(tx, "first", ALL_AT_ONCE, START))

    early = await world.engine.write(lambda tx: claim(tx, "second", ALL_AT_ONCE, START + 1))
    late = await world.engine.write(lambda tx: claim(tx, "second", ALL_AT_ONCE, START + LEASE_S))
    await world.engine.close()

    assert job is not None
    assert early is None
    assert late is not None
    assert job.number != late.number


async def test_a_job_of_a_clock_that_ran_ahead_is_taken_over(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 5)
    await world.arrive(30)
    ahead = START + 365 * 86_400
    job = await world.engine.write(lambda tx: claim(tx, "first", ALL_AT_ONCE, ahead))

    assert job is not None
    assert await merge_once(world.engine, ALL_AT_ONCE, lambda: float(START))
    tail = await world.engine.read(lambda tx: tx.all("SELECT * FROM search_tail"))
    await world.engine.close()

    assert [] == tail


async def test_whoever_thinks_for_long_between_two_writes_is_not_thought_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await World.open(tmp_path, 5)
    await world.arrive(30)
    monkeypatch.setattr(merging, "LEASE_S", 0)
    renewed = asyncio.Event()
    times = iter(range(START, START + 10**6))

    class Thinking(Interrupted):
        async def compute(self, work: Callable[[], T]) -> T:
            await renewed.wait()
            return await self._engine.compute(work)

    async def happens() -> None:
        row = await world.engine.read(lambda tx: tx.one("SELECT until FROM search_segments"))
        if row is not None and row[0] > START + LEASE_S + 5:
            renewed.set()

    engine = Thinking(world.engine, happens)
    assert await merge_once(engine, ALL_AT_ONCE, lambda: float(next(times)))
    await world.engine.close()


async def test_what_a_write_of_a_merge_does_has_a_bound_however_many_inboxes_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_SETS_AT_ONCE", 50)
    monkeypatch.setattr(sweeping, "_AT_ONCE", 50)
    world = await World.open(tmp_path, 5, inboxes=150)
    await world.arrive(200)
    await world.merge(ALL_AT_ONCE)
    await world.arrive(200)
    counts = [await count_sets(world)]

    async def happens() -> None:
        counts.append(await count_sets(world))

    while await merge_once(Interrupted(world.engine, happens), AT_ONCE_AS_ONE):
        pass
    counts.append(await count_sets(world))
    live = await world.engine.read(lambda tx: tx.all("SELECT state, size FROM search_segments"))
    wrong = await wrong_answers(world, 40)
    problems = await world.store.problems()
    await world.engine.close()

    assert [(1, 400)] == live
    assert max(counts) > counts[-1] > 100
    assert 50 >= max(abs(after - before) for before, after in pairwise(counts))
    assert [] == wrong
    assert () == problems


async def count_sets(world: World) -> int:
    row = await world.engine.read(lambda tx: tx.one("SELECT count(*) FROM search_sets"))
    return int(row[0]) if row else 0


async def test_searches_are_right_while_sets_of_a_new_segment_are_written(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 11)
    await world.arrive(100)
    await world.merge(ALL_AT_ONCE)
    await world.arrive(100)
    wrong = []

    async def happens() -> None:
        wrong.extend(await wrong_answers(world, 3))

    while await merge_once(Interrupted(world.engine, happens), AT_ONCE_AS_ONE):
        pass
    await world.engine.close()

    assert [] == wrong


async def test_an_inbox_that_goes_while_old_sets_are_swept_is_gone(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 12)
    await world.arrive(100)
    await world.merge(ALL_AT_ONCE)
    await world.arrive(100)
    while not await world.engine.read(lambda tx: tx.one(IS_SWEPT)):
        await merge_once(world.engine, AT_ONCE_AS_ONE)
    await world.store.remove_inbox(world.inboxes[1].id, None, force=True)
    wrong = await wrong_answers(world, 60)
    await world.merge(AT_ONCE_AS_ONE)
    sets = await world.engine.read(lambda tx: tx.all(SETS_OF_NOTHING))
    problems = await world.store.problems()
    await world.engine.close()

    assert [] == wrong
    assert [] == sets
    assert () == problems


async def test_a_merge_that_is_cancelled_can_be_done_again_at_once(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 6)
    await world.arrive(60)
    merging: asyncio.Task[bool]

    async def happens() -> None:
        row = await world.engine.read(lambda tx: tx.one("SELECT 1 FROM search_rows"))
        if row and not merging.cancelling():
            merging.cancel()

    merging = asyncio.create_task(merge_once(Interrupted(world.engine, happens), ALL_AT_ONCE))
    await asyncio.gather(merging, return_exceptions=True)
    assert merging.cancelled()
    await world.merge()
    tail = await world.engine.read(lambda tx: tx.all("SELECT * FROM search_tail"))
    problems = await world.store.problems()
    await world.engine.close()

    assert [] == tail
    assert () == problems


async def test_several_processes_merge_one_index(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 7)
    other = SqliteEngine.open(tmp_path / "world.db")
    for _ in range(3):
        await world.arrive(50)
        await world.change(10)
        await asyncio.gather(
            *(merge_once(engine, SMALL_SIZES) for engine in (world.engine, other, world.engine))
        )
    wrong = await wrong_answers(world, 60)
    problems = await world.store.problems()
    await other.close()
    await world.engine.close()

    assert [] == wrong
    assert () == problems


async def test_a_segment_takes_no_more_text_than_it_may(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 9)
    await world.arrive(900)
    sizes = Sizes(tail=1, most_bytes=100_000)
    assert await merge_once(world.engine, sizes)
    first = await world.engine.read(lambda tx: tx.all("SELECT size, bytes FROM search_segments"))
    wrong = await wrong_answers(world, 60)
    problems = await world.store.problems()
    await world.engine.close()

    assert 1 == len(first)
    assert 0 < first[0][0] < 900
    assert [] == wrong
    assert () == problems


MERGE_FOREVER = """
import asyncio, sys
from pathlib import Path
from postroom.store.search.choice import Sizes
from postroom.store.search.merging import merge_once
from postroom.store.sqlite.engine import SqliteEngine
async def main():
    engine = SqliteEngine.open(Path(sys.argv[1]))
    print("merging", flush=True)
    while True:
        await merge_once(engine, Sizes(tail=1, fan_out=2))
asyncio.run(main())
"""


async def test_a_kill_in_the_middle_costs_nothing(tmp_path: Path) -> None:
    world = await World.open(tmp_path, 8)
    await world.arrive(400)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MERGE_FOREVER, tmp_path / "world.db", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    for _ in range(20):
        await world.arrive(5)
        await world.change(3)
    process.kill()
    await process.wait()

    wrong = await wrong_answers(world, 60)
    while await merge_once(world.engine, SMALL_SIZES, lambda: LATER):
        pass
    wrong += await wrong_answers(world, 60)
    problems = await world.store.problems()
    await world.engine.close()

    assert [] == wrong
    assert () == problems


def candidates(*sizes: int, removed: int = 0, made_at: int = START) -> list[Candidate]:
    return [Candidate(at, size, size * 2_000, made_at, removed) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("segments", "chosen", "when_quiet"),
    [
        (candidates(600, 600, 600), [], [0, 1, 2]),
        (candidates(*[600] * 11), list(range(11)), list(range(11))),
        (candidates(40_000, *[600] * 12), list(range(1, 12)), list(range(1, 12))),
        (candidates(8_000, 40), [], []),
        (candidates(8_250, 8_250, 1_000), [], [0, 1]),
        (candidates(8_000, 40, 50), [], [1, 2]),
        (candidates(8_000, 900, 200), [], [0, 1, 2]),
        (candidates(*[6_000] * 11), list(range(10)), list(range(10))),
        (candidates(40_000, 50_000, 60_000), [], []),
        (candidates(40_000, removed=6_000), [0], [0]),
        (candidates(40_000, removed=10), [], []),
        (candidates(40_000, removed=1, made_at=START - 11_000), [], [0]),
        (candidates(40_000, removed=1, made_at=START - 41_000), [0], [0]),
        (candidates(40_000, removed=1, made_at=START + 100), [0], [0]),
        (candidates(500, removed=1, made_at=START - 100), [], []),
        (candidates(500, removed=1, made_at=START - 150), [], [0]),
        (candidates(40_000, 600, removed=1, made_at=START - 50_000), [1], [1]),
    ],
)
def test_segments_of_a_size_are_merged_and_decayed_ones_made_anew(
    segments: list[Candidate], chosen: list[int], when_quiet: list[int]
) -> None:
    assert chosen == choose_sources(segments, SIZES, is_quiet=False, now=START)
    assert when_quiet == choose_sources(segments, SIZES, is_quiet=True, now=START)
