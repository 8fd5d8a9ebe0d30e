"""A search in one inbox reads no message of another: all rows that PostgreSQL reads are counted.

There is one index for all inboxes; the counted rows are those of messages and their texts.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from postroom.model.view import EVERYTHING, only
from postroom.store.postgres import connection as connections
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.search.index import IndexSearcher, SearchQuery
from tests.unit.store.search.scenario import SearchScenario

TABLES = ("messages", "search_texts", "bodies", "search_buffer", "attachments")
PATIENT = "; ".join(
    f"SET enable_{way} = off" for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin")
)
"""Tables this small are read entirely, with or without an index."""
INBOXES, MAILS, MAIL_IN_TAIL, QUESTIONS = 8, 400, 80, 24
Statements = list[tuple[bytes, list[object]]]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """The statements that were run, with their values."""
    found: Statements = []
    real = connections.PostgresTransaction._execute

    def execute(self, sql, params):
        statement, names = connections.positional(sql)
        found.append((statement, [params[name] for name in names]))
        return real(self, sql, params)

    monkeypatch.setattr(connections.PostgresTransaction, "_execute", execute)
    return found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def looked_at(connection: psycopg.Connection, statement: bytes, values: list[object]):
    """The number of rows of each table that a query reads, including discarded ones."""
    row = connection.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + statement, values).fetchone()
    assert row is not None
    [explained] = row[0] if isinstance(row[0], list) else json.loads(row[0])
    counts: dict[str, float] = defaultdict(float)
    for node in nodes(explained["Plan"]):
        if table := re.sub(r"_\d+$", "", node.get("Relation Name", "")):
            seen = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            counts[table] += seen * node["Actual Loops"]
    return counts


async def prepared(url: str) -> SearchScenario:
    """Much mail in several inboxes, mostly in segments, some in the buffer."""
    scenario = await SearchScenario.on(PostgresEngine.open(url), 7, inboxes=INBOXES)
    await scenario.arrive(MAILS)
    await scenario.merge()
    await scenario.arrive(MAIL_IN_TAIL)
    return scenario


@pytest.mark.parametrize("is_indexed", [True, False], ids=["index", "small scope"])
async def test_a_search_in_one_inbox_reads_nothing_of_the_others(
    database_url: str, statements: Statements, is_indexed: bool
) -> None:
    scenario = await prepared(database_url)
    scenario.searcher = scenario.searcher if is_indexed else IndexSearcher()
    scan = await scenario.scan()
    sizes = [sum(row[2] == number for row in scan.rows) for number in range(1, INBOXES + 1)]
    most: dict[str, float] = defaultdict(float)
    with connections.connect(database_url) as connection:
        connection.execute("ANALYZE")
        connection.execute(PATIENT)
        for number in range(QUESTIONS):
            inbox = number % INBOXES + 1
            wanted = replace(scenario.query(scan), inboxes=only(inbox), thread=None)
            statements.clear()
            await scenario.find(wanted)
            for statement, values in list(statements):
                for table, count in looked_at(connection, statement, values).items():
                    most[table] = max(most[table], count / sizes[inbox - 1])
    await scenario.engine.close()

    assert {"messages", "search_texts"} <= most.keys()
    assert [] == [(table, share) for table, share in most.items() if table in TABLES and share > 1]


async def test_a_search_outside_its_scope_is_detected(
    database_url: str, statements: Statements
) -> None:
    scenario = await prepared(database_url)

    statements.clear()
    await scenario.find(SearchQuery(inboxes=EVERYTHING, q="invoice of", mailbox="*"))
    with connections.connect(database_url) as connection:
        connection.execute("ANALYZE")
        connection.execute(PATIENT)
        counts = [looked_at(connection, *one)["messages"] for one in statements]
    await scenario.engine.close()

    assert max(counts) > MAILS / INBOXES
