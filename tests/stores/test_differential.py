"""PostgreSQL and SQLite give the same results for the same mail and queries.

`DIFFERENTIAL_SEEDS=10` makes some 2,000 queries; a normal run makes fewer.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from postroom.model.view import EVERYTHING
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.search.index import IndexSearcher
from tests.stores.without_numpy import without_numpy
from tests.unit.store.search.scenario import NOTHING_IS_SMALL, SearchScenario
from tests.unit.store.search.test_results import wrong_results

SEEDS = int(os.environ.get("DIFFERENTIAL_SEEDS", "2"))
QUESTIONS = 40
REMOVED = "SELECT 1 FROM search_sets WHERE name = 'removed' AND length(value) > 1"


@pytest.mark.long_cases("1")
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_both_databases_give_the_same_results(
    tmp_path: Path, database_url: str, seed: int
) -> None:
    scenarios = [
        await SearchScenario.open(tmp_path, seed),
        await SearchScenario.on(PostgresEngine.open(database_url), seed),
    ]
    differences = []
    for _ in range(5):
        answers = [await live(scenario) for scenario in scenarios]
        differences += [pair for pair in zip(*answers, strict=True) if pair[0] != pair[1]]
    wrong = await wrong_results(scenarios[1], QUESTIONS)
    problems = [await scenario.store.problems() for scenario in scenarios]
    for scenario in scenarios:
        await scenario.engine.close()

    assert [] == differences
    assert [] == wrong
    assert [(), ()] == problems


async def live(scenario: SearchScenario) -> list[object]:
    """Change mail, search, and return queries and results."""
    await scenario.arrive(scenario.random.randrange(40, 90))
    await scenario.change(15)
    if scenario.random.random() < 0.8:
        await scenario.merge()
    await scenario.change(5)
    scan = await scenario.scan()
    scan.rows.sort(key=lambda row: int(row[0]))
    asked = [scenario.query(scan) for _ in range(QUESTIONS)]
    return [(wanted, await scenario.find(wanted)) for wanted in asked]


async def test_on_postgresql_without_numpy_removed_messages_are_purged_and_mail_is_found(
    database_url: str,
) -> None:
    scenario = await SearchScenario.on(PostgresEngine.open(database_url), 4)
    await scenario.arrive(80)
    await scenario.merge()
    with without_numpy():
        scenario.searcher = IndexSearcher(NOTHING_IS_SMALL)
        for message_id in scenario.ids[:3]:
            await scenario.store.remove_message(message_id, EVERYTHING)
        await scenario.change(20)
        await scenario.store.purge()
        removed = await scenario.engine.read(lambda tx: tx.all(REMOVED))
        wrong = await wrong_results(scenario, QUESTIONS)
        problems = await scenario.store.problems()
    await scenario.merge()
    problems += await scenario.store.problems()
    await scenario.engine.close()

    assert [] == removed
    assert [] == wrong
    assert () == problems


async def test_on_postgresql_a_wrong_index_is_rebuilt_and_removed_messages_are_purged(
    database_url: str,
) -> None:
    scenario = await SearchScenario.on(PostgresEngine.open(database_url), 3)
    await scenario.arrive(80)
    await scenario.merge()
    for message_id in scenario.ids[:3]:
        await scenario.store.remove_message(message_id, EVERYTHING)
    await scenario.store.purge()
    removed = await scenario.engine.read(lambda tx: tx.all(REMOVED))
    await scenario.engine.write(lambda tx: tx.run("DELETE FROM search_rows WHERE kind = 1"))
    repaired = await scenario.store.repair()
    wrong = await wrong_results(scenario, QUESTIONS)
    problems = await scenario.store.problems()
    await scenario.engine.close()

    assert [] == removed
    assert repaired > 0
    assert [] == wrong
    assert () == problems
