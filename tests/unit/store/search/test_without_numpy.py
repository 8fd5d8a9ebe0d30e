"""Without numpy, mail is found all the same, and nothing of deleted mail stays in the index.

The index is written by a process that has numpy, changed by one that has none, and back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroom.model.view import EVERYTHING, only
from postroom.store.search.compaction.jobs import MergePolicy
from postroom.store.search.index import IndexSearcher, SearchQuery, add_missing_flag_sets
from postroom.store.search.segments.builder import SegmentBuilder
from postroom.store.search.segments.segment import LIVE, segment_numbers
from tests.stores.without_numpy import without_numpy
from tests.unit.store.search.test_results import LABEL_NAMES, wrong_results
from tests.unit.store.search.world import NOTHING_IS_SMALL, World

pytestmark = pytest.mark.one_python

QUESTIONS = 40
WITH_TOMBSTONES = "SELECT 1 FROM search_sets WHERE name = 'removed' AND length(value) > 1"
DUE_NEVER = MergePolicy(buffer_docs=20, fan_out=3, idle_s=1 << 40, tombstone_s=1 << 40)


async def live_segments(world: World) -> list[int]:
    return await world.engine.read(lambda tx: segment_numbers(tx, LIVE))


def choose_how_to_search(world: World) -> None:
    """As a process does when it opens the store."""
    world.searcher = IndexSearcher(NOTHING_IS_SMALL)


@pytest.mark.parametrize("seed", range(3))
async def test_processes_with_and_without_numpy_share_an_index(tmp_path: Path, seed: int) -> None:
    world = await World.open(tmp_path, seed)
    wrong: list[object] = []
    for _ in range(3):
        choose_how_to_search(world)
        await world.arrive(80)
        await world.change(10)
        await world.merge()
        wrong += await wrong_results(world, QUESTIONS)
        with without_numpy():
            choose_how_to_search(world)
            await world.change(20)
            await world.arrive(40)
            await world.change(20)
            await world.merge()
            wrong += await wrong_results(world, QUESTIONS)
            wrong += await world.store.problems()
        wrong += await world.store.problems()
    await world.merge()
    wrong += await world.store.problems()
    merged = await live_segments(world)
    await world.engine.close()

    assert [] == wrong
    assert merged


async def test_counts_are_those_of_the_index(tmp_path: Path) -> None:
    world = await World.open(tmp_path, seed=4)
    await world.arrive(120)
    await world.merge(DUE_NEVER)
    await world.change(40)

    keys = [(inbox, name) for inbox in (1, 2, 3) for name in ("inbox", "trash", "none")]

    async def counts() -> list[dict[Any, Any]]:
        choose_how_to_search(world)
        # What is remembered is forgotten at the next write.
        await world.engine.write(lambda tx: tx.run("UPDATE messages SET flags = flags"))
        searcher = world.searcher
        return await world.engine.read(
            lambda tx: [
                searcher.count_mailboxes(tx, keys),
                searcher.count_labels(tx, EVERYTHING, LABEL_NAMES),
                searcher.count_labels(tx, only(2), LABEL_NAMES),
            ]
        )

    with_numpy = await counts()
    with without_numpy():
        plain = await counts()
    await world.engine.close()

    assert [with_numpy[0][key] for key in keys] == [plain[0][key] for key in keys]
    assert with_numpy[1:] == plain[1:]
    assert any(with_numpy[2].values())


async def test_removed_mail_is_purged_from_the_index(tmp_path: Path) -> None:
    world = await World.open(tmp_path, seed=5)
    await world.arrive(100)
    secret = await world.arrive_with("secretword")
    await world.merge(MergePolicy(buffer_docs=40))
    before = await live_segments(world)
    with without_numpy():
        await world.store.remove_message(secret, EVERYTHING)
        await world.store.purge()
        left = await world.engine.read(
            lambda tx: [
                tx.all(WITH_TOMBSTONES),
                tx.all("SELECT 1 FROM search_rows WHERE instr(value, CAST('secretword' AS BLOB))"),
            ]
        )
        problems = await world.store.problems()
        again = await world.store.repair()
    await world.merge()
    wrong = await wrong_results(world, QUESTIONS)
    problems += await world.store.problems()
    await world.engine.close()

    assert before
    assert [[], []] == left
    assert [] == wrong
    assert ((), 0) == (problems, again)


async def test_a_process_without_numpy_leaves_its_mail_in_the_buffer_and_does_not_keep_busy(
    tmp_path: Path,
) -> None:
    world = await World.open(tmp_path, seed=6)
    with without_numpy():
        await world.arrive(600)
        busy = await world.store.compact_index()
        rows = await world.engine.read(lambda tx: tx.all("SELECT 1 FROM search_segments"))
    await world.engine.close()

    assert (False, []) == (busy, rows)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("UPDATE search_rows SET value = x'00' WHERE kind = 5 AND part = 0", "not those that were"),
        ("DELETE FROM search_sets WHERE name = 'inbox:2'", "the set inbox:2 is wrong"),
        ("DELETE FROM search_buffer", "is not in the search index"),
    ],
)
async def test_damage_is_found_and_repaired(tmp_path: Path, damage: str, told: str) -> None:
    world = await World.open(tmp_path, seed=7)
    await world.arrive(100)
    await world.merge(MergePolicy(buffer_docs=40))
    await world.arrive(10)
    with without_numpy():
        before = await world.store.problems()
        await world.engine.write(lambda tx: tx.run(damage))
        problems = " ".join(await world.store.problems())
        repaired = await world.store.repair()
        after = await world.store.problems()
        choose_how_to_search(world)
        wrong = await wrong_results(world, QUESTIONS)
    rebuilt = await world.store.repair()
    await world.engine.close()

    assert () == before
    assert told in problems
    assert repaired > 0
    assert () == after
    assert [] == wrong
    assert 0 == rebuilt


async def test_segments_of_an_earlier_version_get_their_sets_of_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await World.open(tmp_path, seed=8)
    monkeypatch.setattr(SegmentBuilder.__init__, "__defaults__", (2,))
    await world.arrive(100)
    await world.merge(MergePolicy(buffer_docs=40, idle_s=1 << 40))
    await world.engine.write(lambda tx: tx.run("DELETE FROM search_sets WHERE name LIKE 'flag%'"))
    with without_numpy():
        await add_missing_flag_sets(world.engine)
        problems = await world.store.problems()
    seen = SearchQuery(inboxes=EVERYTHING, flags=("seen",), mailbox="*")
    found, look = await world.find(seen), await world.look()
    await world.engine.close()

    assert () == problems
    assert look.answer(seen) == found
