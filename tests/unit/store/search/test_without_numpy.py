"""Without numpy, mail is still found, and no text of deleted mail stays in the index.

The index is written by a process with numpy, changed by one without, and changed again.
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
from tests.unit.store.search.scenario import NOTHING_IS_SMALL, SearchScenario
from tests.unit.store.search.test_results import LABEL_NAMES, wrong_results

pytestmark = pytest.mark.one_python

QUESTIONS = 40
WITH_TOMBSTONES = "SELECT 1 FROM search_sets WHERE name = 'removed' AND length(value) > 1"
DUE_NEVER = MergePolicy(buffer_docs=20, fan_out=3, idle_s=1 << 40, tombstone_s=1 << 40)


async def live_segments(scenario: SearchScenario) -> list[int]:
    return await scenario.engine.read(lambda tx: segment_numbers(tx, LIVE))


def choose_how_to_search(scenario: SearchScenario) -> None:
    """Choose the search implementation, as a process does when it opens the store."""
    scenario.searcher = IndexSearcher(NOTHING_IS_SMALL)


@pytest.mark.parametrize("seed", range(3))
async def test_processes_with_and_without_numpy_share_an_index(tmp_path: Path, seed: int) -> None:
    scenario = await SearchScenario.open(tmp_path, seed)
    wrong: list[object] = []
    for _ in range(3):
        choose_how_to_search(scenario)
        await scenario.arrive(80)
        await scenario.change(10)
        await scenario.merge()
        wrong += await wrong_results(scenario, QUESTIONS)
        with without_numpy():
            choose_how_to_search(scenario)
            await scenario.change(20)
            await scenario.arrive(40)
            await scenario.change(20)
            await scenario.merge()
            wrong += await wrong_results(scenario, QUESTIONS)
            wrong += await scenario.store.problems()
        wrong += await scenario.store.problems()
    await scenario.merge()
    wrong += await scenario.store.problems()
    merged = await live_segments(scenario)
    await scenario.engine.close()

    assert [] == wrong
    assert merged


async def test_counts_are_those_of_the_index(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=4)
    await scenario.arrive(120)
    await scenario.merge(DUE_NEVER)
    await scenario.change(40)

    keys = [(inbox, name) for inbox in (1, 2, 3) for name in ("inbox", "trash", "none")]

    async def counts() -> list[dict[Any, Any]]:
        choose_how_to_search(scenario)
        # The next write invalidates the cache.
        await scenario.engine.write(lambda tx: tx.run("UPDATE messages SET flags = flags"))
        searcher = scenario.searcher
        return await scenario.engine.read(
            lambda tx: [
                searcher.count_mailboxes(tx, keys),
                searcher.count_labels(tx, EVERYTHING, LABEL_NAMES),
                searcher.count_labels(tx, only(2), LABEL_NAMES),
            ]
        )

    with_numpy = await counts()
    with without_numpy():
        plain = await counts()
    await scenario.engine.close()

    assert [with_numpy[0][key] for key in keys] == [plain[0][key] for key in keys]
    assert with_numpy[1:] == plain[1:]
    assert any(with_numpy[2].values())


async def test_removed_mail_is_purged_from_the_index(tmp_path: Path) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=5)
    await scenario.arrive(100)
    secret = await scenario.arrive_with("secretword")
    await scenario.merge(MergePolicy(buffer_docs=40))
    before = await live_segments(scenario)
    with without_numpy():
        await scenario.store.remove_message(secret, EVERYTHING)
        await scenario.store.purge()
        left = await scenario.engine.read(
            lambda tx: [
                tx.all(WITH_TOMBSTONES),
                tx.all("SELECT 1 FROM search_rows WHERE instr(value, CAST('secretword' AS BLOB))"),
            ]
        )
        problems = await scenario.store.problems()
        again = await scenario.store.repair()
    await scenario.merge()
    wrong = await wrong_results(scenario, QUESTIONS)
    problems += await scenario.store.problems()
    await scenario.engine.close()

    assert before
    assert [[], []] == left
    assert [] == wrong
    assert ((), 0) == (problems, again)


async def test_a_process_without_numpy_leaves_its_mail_in_the_buffer_and_does_not_keep_busy(
    tmp_path: Path,
) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=6)
    with without_numpy():
        await scenario.arrive(600)
        busy = await scenario.store.compact_index()
        rows = await scenario.engine.read(lambda tx: tx.all("SELECT 1 FROM search_segments"))
    await scenario.engine.close()

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
    scenario = await SearchScenario.open(tmp_path, seed=7)
    await scenario.arrive(100)
    await scenario.merge(MergePolicy(buffer_docs=40))
    await scenario.arrive(10)
    with without_numpy():
        before = await scenario.store.problems()
        await scenario.engine.write(lambda tx: tx.run(damage))
        problems = " ".join(await scenario.store.problems())
        repaired = await scenario.store.repair()
        after = await scenario.store.problems()
        choose_how_to_search(scenario)
        wrong = await wrong_results(scenario, QUESTIONS)
    rebuilt = await scenario.store.repair()
    await scenario.engine.close()

    assert () == before
    assert told in problems
    assert repaired > 0
    assert () == after
    assert [] == wrong
    assert 0 == rebuilt


async def test_segments_of_an_earlier_version_get_their_sets_of_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = await SearchScenario.open(tmp_path, seed=8)
    monkeypatch.setattr(SegmentBuilder.__init__, "__defaults__", (2,))
    await scenario.arrive(100)
    await scenario.merge(MergePolicy(buffer_docs=40, idle_s=1 << 40))
    await scenario.engine.write(
        lambda tx: tx.run("DELETE FROM search_sets WHERE name LIKE 'flag%'")
    )
    with without_numpy():
        await add_missing_flag_sets(scenario.engine)
        problems = await scenario.store.problems()
    seen = SearchQuery(inboxes=EVERYTHING, flags=("seen",), mailbox="*")
    found, scan = await scenario.find(seen), await scenario.scan()
    await scenario.engine.close()

    assert () == problems
    assert scan.answer(seen) == found
