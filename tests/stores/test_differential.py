"""PostgreSQL and SQLite give the same results for the same mail and queries.

`DIFFERENTIAL_SEEDS=10` asks some 2,000 questions; the normal run asks fewer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.search.index import IndexSearcher
from tests.stores.without_numpy import without_numpy
from tests.unit.store.search.test_results import wrong_results
from tests.unit.store.search.world import NOTHING_IS_SMALL, World

SEEDS = int(os.environ.get("DIFFERENTIAL_SEEDS", "2"))
QUESTIONS = 40
REMOVED = "SELECT 1 FROM search_sets WHERE name = 'removed' AND length(value) > 1"


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_both_databases_give_the_same_answers(
    tmp_path: Path, database_url: str, seed: int
) -> None:
    worlds = [
        await World.open(tmp_path, seed),
        await World.on(PostgresEngine.open(database_url), seed),
    ]
    differences = []
    for _ in range(5):
        answers = [await live(world) for world in worlds]
        differences += [pair for pair in zip(*answers, strict=True) if pair[0] != pair[1]]
    wrong = await wrong_results(worlds[1], QUESTIONS)
    problems = [await world.store.problems() for world in worlds]
    for world in worlds:
        await world.engine.close()

    assert [] == differences
    assert [] == wrong
    assert [(), ()] == problems


async def live(world: World) -> list[object]:
    """Change mail, search, and return queries and results."""
    await world.arrive(world.random.randrange(40, 90))
    await world.change(15)
    if world.random.random() < 0.8:
        await world.merge()
    await world.change(5)
    look = await world.look()
    look.rows.sort(key=lambda row: int(row[0]))
    asked = [world.query(look) for _ in range(QUESTIONS)]
    return [(wanted, await world.find(wanted)) for wanted in asked]


async def test_on_postgresql_without_numpy_removed_messages_are_purged_and_mail_is_found(
    database_url: str,
) -> None:
    world = await World.on(PostgresEngine.open(database_url), 4)
    await world.arrive(80)
    await world.merge()
    with without_numpy():
        world.searcher = IndexSearcher(NOTHING_IS_SMALL)
        for message_id in world.ids[:3]:
            await world.store.remove_message(message_id, EVERYTHING)
        await world.change(20)
        await world.store.purge()
        removed = await world.engine.read(lambda tx: tx.all(REMOVED))
        wrong = await wrong_results(world, QUESTIONS)
        problems = await world.store.problems()
    await world.merge()
    problems += await world.store.problems()
    await world.engine.close()

    assert [] == removed
    assert [] == wrong
    assert () == problems


async def test_on_postgresql_a_wrong_index_is_rebuilt_and_removed_messages_are_purged(
    database_url: str,
) -> None:
    world = await World.on(PostgresEngine.open(database_url), 3)
    await world.arrive(80)
    await world.merge()
    for message_id in world.ids[:3]:
        await world.store.remove_message(message_id, EVERYTHING)
    await world.store.purge()
    removed = await world.engine.read(lambda tx: tx.all(REMOVED))
    await world.engine.write(lambda tx: tx.run("DELETE FROM search_rows WHERE kind = 1"))
    repaired = await world.store.repair()
    wrong = await wrong_results(world, QUESTIONS)
    problems = await world.store.problems()
    await world.engine.close()

    assert [] == removed
    assert repaired > 0
    assert [] == wrong
    assert () == problems
