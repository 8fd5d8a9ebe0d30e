"""Merges during changes, with other processes, and in killed processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.search.compaction import jobs, merging
from postroom.store.search.compaction.jobs import (
    DEFAULT_POLICY,
    LEASE_S,
    Candidate,
    MergePolicy,
    choose_segments,
    claim,
    segments_with_tombstones,
)
from postroom.store.search.index import compact, purge
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.transaction import Transaction
from tests.unit.store.search.scenario import SMALL_POLICY, START, SearchScenario
from tests.unit.store.search.test_results import wrong_results

pytestmark = pytest.mark.one_python
T = TypeVar("T")
ALL_AT_ONCE = MergePolicy(buffer_docs=1)
AT_ONCE_AS_ONE = MergePolicy(buffer_docs=1, fan_out=2, tombstone_s=0, idle_tombstone_s=0)
IS_SWEPT = "SELECT 1 FROM search_segments WHERE state = 2"
SETS_OF_NOTHING = """
    SELECT * FROM search_sets WHERE segment NOT IN (SELECT number FROM search_segments)
"""
LATER = float(2 * START)


class InterruptedEngine:
    """An engine that calls a function before every write."""

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


class RetryingEngine(InterruptedEngine):
    """An engine that loses the first result of every transaction, like a restarting server."""

    async def read(self, work: Callable[[Transaction], T]) -> T:
        await self._engine.read(work)
        return await self._engine.read(work)

    async def scan(self, work: Callable[[Transaction], T]) -> T:
        await self._engine.scan(work)
        return await self._engine.scan(work)


@pytest.mark.parametrize("seed", [1, 2])
async def test_changes_during_a_merge_are_not_lost(tmp_path: Path, seed: int) -> None:
    scenario = await SearchScenario.open(tmp_path, seed)
    wrong = []

    async def happens() -> None:
        await scenario.arrive(2)
        await scenario.change(6)

    for _ in range(4):
        await scenario.arrive(60)
        await compact(InterruptedEngine(scenario.engine, happens), SMALL_POLICY)
        wrong += await wrong_results(scenario, 40)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert [] == wrong
    assert () == problems


async def test_a_retried_transaction_of_a_merge_loses_nothing(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 6)

    async def happens() -> None:
        await scenario.change(3)

    for _ in range(4):
        await scenario.arrive(300)
        await compact(RetryingEngine(scenario.engine, happens), SMALL_POLICY)
    wrong = await wrong_results(scenario, 60)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert [] == wrong
    assert () == problems


async def test_a_purge_waits_for_a_merge_that_contains_removed_messages(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 3)
    await scenario.arrive(100)
    purges: list[asyncio.Task[None]] = []

    async def happens() -> None:
        await scenario.store.remove_message(scenario.ids[len(purges)], EVERYTHING)
        purges.append(asyncio.create_task(purge(scenario.engine)))
        await asyncio.sleep(0)

    await compact(InterruptedEngine(scenario.engine, happens), ALL_AT_ONCE)
    await asyncio.gather(*purges)
    decayed = await scenario.engine.read(segments_with_tombstones)
    await scenario.engine.close()

    assert purges
    assert [] == decayed


async def test_an_inbox_removed_during_a_merge_is_not_found(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 3)
    await scenario.arrive(100)
    await scenario.merge()
    await scenario.arrive(100)

    async def happens() -> None:
        await scenario.store.remove_inbox(scenario.inboxes[1].id, EVERYTHING, force=True)

    await compact(InterruptedEngine(scenario.engine, happens), ALL_AT_ONCE)
    wrong = await wrong_results(scenario, 60)
    await scenario.merge()
    wrong += await wrong_results(scenario, 60)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert [] == wrong
    assert () == problems


async def test_a_process_that_lost_its_lease_changes_nothing(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 4)
    await scenario.arrive(150)
    has_overtaken = False

    async def happens() -> None:
        nonlocal has_overtaken
        row = await scenario.engine.read(lambda tx: tx.one("SELECT 1 FROM search_rows"))
        if row and not has_overtaken:
            has_overtaken = True
            while await compact(scenario.engine, ALL_AT_ONCE, lambda: LATER):
                pass

    finished = await compact(InterruptedEngine(scenario.engine, happens), ALL_AT_ONCE)
    wrong = await wrong_results(scenario, 60)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert has_overtaken
    assert not finished
    assert [] == wrong
    assert () == problems


async def test_a_job_is_not_taken_over_before_its_lease_ends(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 5)
    await scenario.arrive(30)
    job = await scenario.engine.write(lambda tx: claim(tx, "first", ALL_AT_ONCE, START))

    early = await scenario.engine.write(lambda tx: claim(tx, "second", ALL_AT_ONCE, START + 1))
    late = await scenario.engine.write(lambda tx: claim(tx, "second", ALL_AT_ONCE, START + LEASE_S))
    await scenario.engine.close()

    assert job is not None
    assert early is None
    assert late is not None
    assert job.number != late.number


async def test_a_lease_too_far_in_the_future_is_taken_over(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 5)
    await scenario.arrive(30)
    lookahead = START + 365 * 86_400
    job = await scenario.engine.write(lambda tx: claim(tx, "first", ALL_AT_ONCE, lookahead))

    assert job is not None
    assert await compact(scenario.engine, ALL_AT_ONCE, lambda: float(START))
    buffer = await scenario.engine.read(lambda tx: tx.all("SELECT * FROM search_buffer"))
    await scenario.engine.close()

    assert [] == buffer


async def test_a_lease_is_renewed_between_writes_that_are_far_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = await SearchScenario.open(tmp_path, 5)
    await scenario.arrive(30)
    monkeypatch.setattr(merging, "LEASE_S", 0)
    renewed = asyncio.Event()
    times = iter(range(START, START + 10**6))

    class SlowEngine(InterruptedEngine):
        async def compute(self, work: Callable[[], T]) -> T:
            await renewed.wait()
            return await self._engine.compute(work)

    async def happens() -> None:
        row = await scenario.engine.read(lambda tx: tx.one("SELECT until FROM search_segments"))
        if row is not None and row[0] > START + LEASE_S + 5:
            renewed.set()

    engine = SlowEngine(scenario.engine, happens)
    assert await compact(engine, ALL_AT_ONCE, lambda: float(next(times)))
    await scenario.engine.close()


async def test_the_writes_of_a_merge_are_bounded_for_any_number_of_inboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_SETS_BATCH", 50)
    monkeypatch.setattr(jobs, "_BATCH", 50)
    scenario = await SearchScenario.open(tmp_path, 5, inboxes=150)
    await scenario.arrive(200)
    await scenario.merge(ALL_AT_ONCE)
    await scenario.arrive(200)
    counts = [await count_sets(scenario)]

    async def happens() -> None:
        counts.append(await count_sets(scenario))

    while await compact(InterruptedEngine(scenario.engine, happens), AT_ONCE_AS_ONE):
        pass
    counts.append(await count_sets(scenario))
    live = await scenario.engine.read(lambda tx: tx.all("SELECT state, size FROM search_segments"))
    wrong = await wrong_results(scenario, 40)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert [(1, 400)] == live
    assert max(counts) > counts[-1] > 100
    assert 50 >= max(abs(after - before) for before, after in pairwise(counts))
    assert [] == wrong
    assert () == problems


async def count_sets(scenario: SearchScenario) -> int:
    row = await scenario.engine.read(lambda tx: tx.one("SELECT count(*) FROM search_sets"))
    return int(row[0]) if row else 0


async def test_searches_are_correct_while_sets_of_a_new_segment_are_written(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 11)
    await scenario.arrive(100)
    await scenario.merge(ALL_AT_ONCE)
    await scenario.arrive(100)
    wrong = []

    async def happens() -> None:
        wrong.extend(await wrong_results(scenario, 3))

    while await compact(InterruptedEngine(scenario.engine, happens), AT_ONCE_AS_ONE):
        pass
    await scenario.engine.close()

    assert [] == wrong


async def test_an_inbox_removed_while_dropped_sets_are_deleted_is_not_found(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 12)
    await scenario.arrive(100)
    await scenario.merge(ALL_AT_ONCE)
    await scenario.arrive(100)
    while not await scenario.engine.read(lambda tx: tx.one(IS_SWEPT)):
        await compact(scenario.engine, AT_ONCE_AS_ONE)
    await scenario.store.remove_inbox(scenario.inboxes[1].id, EVERYTHING, force=True)
    wrong = await wrong_results(scenario, 60)
    await scenario.merge(AT_ONCE_AS_ONE)
    sets = await scenario.engine.read(lambda tx: tx.all(SETS_OF_NOTHING))
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert [] == wrong
    assert [] == sets
    assert () == problems


async def test_a_cancelled_merge_can_be_repeated_at_once(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 6)
    await scenario.arrive(60)
    merging: asyncio.Task[bool]

    async def happens() -> None:
        row = await scenario.engine.read(lambda tx: tx.one("SELECT 1 FROM search_rows"))
        if row and not merging.cancelling():
            merging.cancel()

    merging = asyncio.create_task(compact(InterruptedEngine(scenario.engine, happens), ALL_AT_ONCE))
    await asyncio.gather(merging, return_exceptions=True)
    assert merging.cancelled()
    await scenario.merge()
    buffer = await scenario.engine.read(lambda tx: tx.all("SELECT * FROM search_buffer"))
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert [] == buffer
    assert () == problems


async def test_several_processes_merge_one_index(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 7)
    other = SqliteEngine.open(tmp_path / "world.db")
    for _ in range(3):
        await scenario.arrive(50)
        await scenario.change(10)
        await asyncio.gather(
            *(compact(engine, SMALL_POLICY) for engine in (scenario.engine, other, scenario.engine))
        )
    wrong = await wrong_results(scenario, 60)
    problems = await scenario.store.problems()
    await other.close()
    await scenario.engine.close()

    assert [] == wrong
    assert () == problems


async def test_the_text_of_a_segment_is_limited(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 9)
    await scenario.arrive(900)
    policy = MergePolicy(buffer_docs=1, max_bytes=100_000)
    assert await compact(scenario.engine, policy)
    first = await scenario.engine.read(lambda tx: tx.all("SELECT size, bytes FROM search_segments"))
    wrong = await wrong_results(scenario, 60)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert 1 == len(first)
    assert 0 < first[0][0] < 900
    assert [] == wrong
    assert () == problems


MERGE_FOREVER = """
import asyncio, sys
from pathlib import Path
from postroom.store.search.compaction.jobs import MergePolicy
from postroom.store.search.index import compact
from postroom.store.sqlite.engine import SqliteEngine
async def main():
    engine = SqliteEngine.open(Path(sys.argv[1]))
    print("merging", flush=True)
    while True:
        await compact(engine, MergePolicy(buffer_docs=1, fan_out=2))
asyncio.run(main())
"""


async def test_killing_a_process_during_a_merge_loses_nothing(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, 8)
    await scenario.arrive(400)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MERGE_FOREVER, tmp_path / "world.db", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    for _ in range(20):
        await scenario.arrive(5)
        await scenario.change(3)
    process.kill()
    await process.wait()

    wrong = await wrong_results(scenario, 60)
    while await compact(scenario.engine, SMALL_POLICY, lambda: LATER):
        pass
    wrong += await wrong_results(scenario, 60)
    problems = await scenario.store.problems()
    await scenario.engine.close()

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
def test_segments_of_a_level_are_merged_and_those_with_tombstones_rewritten(
    segments: list[Candidate], chosen: list[int], when_quiet: list[int]
) -> None:
    assert chosen == choose_segments(segments, DEFAULT_POLICY, is_idle=False, now=START)
    assert when_quiet == choose_segments(segments, DEFAULT_POLICY, is_idle=True, now=START)
