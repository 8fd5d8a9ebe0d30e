"""Verification compares the index with one that is built now, and reports differences."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.search import index
from postroom.store.search.compaction import jobs
from postroom.store.search.compaction.jobs import DEFAULT_POLICY, MergePolicy
from postroom.store.search.index import compact, purge
from postroom.store.search.segments.segment import Kind
from tests.unit.store.search.world import START, World

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


async def compacted_world(folder: Path, seed: int) -> World:
    """A world with added, changed and removed mail, all of it compacted."""
    world = await World.open(folder, seed)
    for _ in range(4):
        await world.arrive(60)
        await world.change(10)
        await world.merge()
    return world


async def test_an_index_after_many_changes_has_no_problems(tmp_path: Path) -> None:
    world = await compacted_world(tmp_path, 5)
    await world.change(20)

    assert () == await world.store.problems()
    await world.engine.close()


async def merged_into_one(world: World, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """All rows and sets of the index after a merge into one segment."""
    monkeypatch.setattr(
        jobs,
        "choose_segments",
        lambda segments, *_, **__: [s.number for s in segments] if len(segments) > 1 else [],
    )
    await world.merge(MergePolicy(buffer_docs=1))
    return await world.engine.read(lambda tx: [tx.all(ROWS), tx.all(SETS)])


async def test_a_merge_leaves_no_trace_of_changed_or_removed_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await compacted_world(tmp_path, 6)
    await world.change(100)
    for message_id in world.ids[::3]:
        await world.store.remove_message(message_id, EVERYTHING)
    grown = await merged_into_one(world, monkeypatch)

    await world.engine.write(index.reset_index)
    rebuilt = await merged_into_one(world, monkeypatch)
    await world.engine.close()

    assert rebuilt == grown


async def test_each_kind_of_damage_is_found(tmp_path: Path) -> None:
    world = await compacted_world(tmp_path, 7)
    damages = (
        "UPDATE search_rows SET value = x'00' WHERE kind = 5 AND part = 0",
        "DELETE FROM search_rows WHERE kind = 1 AND part = 1",
        "DELETE FROM search_sets WHERE name = 'inbox:2'",
        "INSERT INTO search_buffer (message, inbox) VALUES (999999, 1)",
        "INSERT INTO search_buffer (message, inbox) SELECT min(number), 1 FROM messages",
    )
    for damage in damages:
        await world.engine.write(lambda tx, damage=damage: tx.run(damage))
    problems = " ".join(await world.store.problems())
    await world.engine.close()

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
    world = await compacted_world(tmp_path, 8)
    for message_id in world.ids[::40]:
        await world.store.remove_message(message_id, EVERYTHING)
    before = await world.store.problems()
    await world.engine.write(lambda tx: tx.run(damage))
    problems = " ".join(await world.store.problems())
    await world.engine.close()

    assert () == before
    assert told in problems


async def test_a_segment_with_tombstones_is_rewritten_when_it_is_old_enough(
    tmp_path: Path,
) -> None:
    world = await World.open(tmp_path, 9)
    await world.arrive(60)
    while await compact(world.engine, MergePolicy(buffer_docs=1), lambda: float(START)):
        pass
    before = await segments(world)
    await world.store.remove_message(world.ids[0], EVERYTHING)
    while await compact(world.engine, DEFAULT_POLICY, lambda: float(START + 12)):
        pass
    early = await segments(world)
    while await compact(world.engine, DEFAULT_POLICY, lambda: float(START + 16)):
        pass
    late = await segments(world)
    problems = await world.store.problems()
    await world.engine.close()

    assert [60] == list(before.values()) == list(early.values())
    assert [59] == list(late.values())
    assert () == problems


async def test_a_purge_removes_all_tombstones_and_leaves_no_other_work(
    tmp_path: Path,
) -> None:
    world = await compacted_world(tmp_path, 10)
    await world.store.remove_message(world.ids[-1], EVERYTHING)
    await purge(world.engine)
    removed = await world.engine.read(lambda tx: tx.all(REMOVED_OF_LIVE))
    problems = await world.store.problems()
    await world.engine.close()

    assert [] == removed
    assert () == problems


async def segments(world: World) -> dict[int, int]:
    """The sizes of all segments that have rows."""
    return dict(
        await world.engine.read(lambda tx: tx.all("SELECT number, size FROM search_segments"))
    )


def test_the_readme_lists_every_kind_of_row() -> None:
    readme = (Path(index.__file__).parent / "README.md").read_text()

    assert [] == [kind for kind in Kind if f"| {kind.value} | `{kind.name}` |" not in readme]
