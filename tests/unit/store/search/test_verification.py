"""Verification compares the index with a newly built one, and reports differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.search import index
from postroom.store.search.compaction import jobs
from postroom.store.search.compaction.jobs import DEFAULT_POLICY, MergePolicy
from postroom.store.search.index import compact, purge
from postroom.store.search.segments.segment import Kind
from tests.unit.store.search.scenario import START, SearchScenario

pytestmark = pytest.mark.one_python

ROWS = """
    SELECT r.kind, r.key, r.part, r.value FROM search_rows r
      JOIN search_segments s ON s.number = r.segment
     WHERE s.state = 1 ORDER BY r.kind, r.key, r.part
"""
REMOVED_OF_LIVE = """
    SELECT 1 FROM search_sets WHERE name = 'removed' AND length(value) > 1
"""
SETS = """
    SELECT name, value FROM search_sets WHERE length(value) > 1 ORDER BY name
"""


async def compacted_scenario(folder: Path, seed: int) -> SearchScenario:
    """A world with added, changed and removed mail, all of it compacted."""
    scenario = await SearchScenario.open(folder, seed)
    for _ in range(4):
        await scenario.arrive(60)
        await scenario.change(10)
        await scenario.merge()
    return scenario


async def test_an_index_after_many_changes_has_no_problems(tmp_path: Path) -> None:
    scenario = await compacted_scenario(tmp_path, 5)
    await scenario.change(20)

    assert () == await scenario.store.problems()
    await scenario.engine.close()


async def merged_into_one(
    scenario: SearchScenario, monkeypatch: pytest.MonkeyPatch
) -> list[object]:
    """All rows and sets of the index after a merge into one segment."""
    monkeypatch.setattr(
        jobs,
        "choose_segments",
        lambda segments, *_, **__: [s.number for s in segments] if len(segments) > 1 else [],
    )
    await scenario.merge(MergePolicy(buffer_docs=1))
    return await scenario.engine.read(lambda tx: [tx.all(ROWS), tx.all(SETS)])


async def test_a_merge_leaves_no_trace_of_changed_or_removed_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = await compacted_scenario(tmp_path, 6)
    await scenario.change(100)
    for message_id in scenario.ids[::3]:
        await scenario.store.remove_message(message_id, EVERYTHING)
    grown = await merged_into_one(scenario, monkeypatch)

    await scenario.engine.write(index.reset_index)
    rebuilt = await merged_into_one(scenario, monkeypatch)
    await scenario.engine.close()

    assert rebuilt == grown


async def test_each_kind_of_damage_is_found(tmp_path: Path) -> None:
    scenario = await compacted_scenario(tmp_path, 7)
    damages = (
        "UPDATE search_rows SET value = x'00' WHERE kind = 5 AND part = 0",
        "DELETE FROM search_rows WHERE kind = 1 AND part = 1",
        "DELETE FROM search_sets WHERE name = 'inbox:2'",
        "INSERT INTO search_buffer (message, inbox) VALUES (999999, 1)",
        "INSERT INTO search_buffer (message, inbox) SELECT min(number), 1 FROM messages",
    )
    for damage in damages:
        await scenario.engine.write(lambda tx, damage=damage: tx.run(damage))
    problems = " ".join(await scenario.store.problems())
    await scenario.engine.close()

    assert "row boundary" in problems
    assert "is missing" in problems
    assert "the set inbox:2 is wrong" in problems
    assert "999999, which does not exist" in problems
    assert "more than once" in problems


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("DELETE FROM search_rows WHERE kind IN (0, 1, 5, 6)", "not those that were written"),
        ("DELETE FROM search_rows WHERE kind = 1 AND part = 1", "not those that were written"),
        ("UPDATE search_rows SET value = x'00' WHERE kind = 5", "not those that were written"),
        ("DELETE FROM search_rows WHERE kind = 102", "not those that were written"),
        ("DELETE FROM search_rows WHERE kind = 31", "not those that were written"),
        ("DELETE FROM search_sets WHERE name = 'flag:seen'", "the set flag:seen is wrong"),
        ("DELETE FROM search_sets WHERE name = 'inbox:2'", "the set inbox:2 is wrong"),
        ("UPDATE search_sets SET value = x'000500' WHERE name = 'hidden'", "the set hidden is"),
    ],
)
async def test_damage_is_found_in_a_segment_with_tombstones(
    tmp_path: Path, damage: str, told: str
) -> None:
    scenario = await compacted_scenario(tmp_path, 8)
    for message_id in scenario.ids[::40]:
        await scenario.store.remove_message(message_id, EVERYTHING)
    before = await scenario.store.problems()
    await scenario.engine.write(lambda tx: tx.run(damage))
    problems = " ".join(await scenario.store.problems())
    await scenario.engine.close()

    assert () == before
    assert told in problems


async def test_a_segment_with_tombstones_is_rewritten_when_it_is_old_enough(
    tmp_path: Path,
) -> None:
    scenario = await SearchScenario.open(tmp_path, 9)
    await scenario.arrive(60)
    while await compact(scenario.engine, MergePolicy(buffer_docs=1), lambda: float(START)):
        pass
    before = await segments(scenario)
    await scenario.store.remove_message(scenario.ids[0], EVERYTHING)
    while await compact(scenario.engine, DEFAULT_POLICY, lambda: float(START + 12)):
        pass
    early = await segments(scenario)
    while await compact(scenario.engine, DEFAULT_POLICY, lambda: float(START + 16)):
        pass
    late = await segments(scenario)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert [60] == list(before.values()) == list(early.values())
    assert [59] == list(late.values())
    assert () == problems


async def test_a_purge_removes_all_tombstones_and_leaves_no_other_work(
    tmp_path: Path,
) -> None:
    scenario = await compacted_scenario(tmp_path, 10)
    await scenario.store.remove_message(scenario.ids[-1], EVERYTHING)
    await purge(scenario.engine)
    removed = await scenario.engine.read(lambda tx: tx.all(REMOVED_OF_LIVE))
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert [] == removed
    assert () == problems


async def segments(scenario: SearchScenario) -> dict[int, int]:
    """The sizes of all segments that have rows."""
    return dict(
        await scenario.engine.read(lambda tx: tx.all("SELECT number, size FROM search_segments"))
    )


def test_the_readme_lists_every_kind_of_row() -> None:
    readme = (Path(index.__file__).parent / "README.md").read_text()

    assert [] == [kind for kind in Kind if f"| {kind.value} | `{kind.name}` |" not in readme]
