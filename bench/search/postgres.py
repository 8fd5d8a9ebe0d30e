"""Search on PostgreSQL compared with ILIKE and pg_trgm, on the same rows in the same run.

    python -m bench.search.postgres [URL] [-n N]

Without a URL it starts a server of its own in a temporary folder. The database must be empty, or
hold the same corpus from before. Times are wall clock on warm data, each a page of 50 and the exact
total; compare them as ratios. Ours are reported between writes, which is compared, and after one.
Ours are measured first, without trigrams, which PostgreSQL would use for our queries as well, to
our disadvantage. Exits with 1 if a one-word class misses its bar (100 times as fast as ILIKE, 20
times as fast as pg_trgm) or an answer differs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg

from bench.search.corpus import Corpus
from bench.search.loading import BIG_INBOX, fill, write_something
from bench.search.measuring import table
from bench.search.questions import ONE_WORD, Question, fixed
from postroom.model.view import EVERYTHING, only
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.search.index import IndexSearcher, SearchQuery
from postroom.store.transaction import Transaction
from tests.servers import postgres

TIMES_ILIKE, TIMES_TRIGRAMS = 100, 20
TIMES = 10
SLOW_MS = 500
"""Slower queries run only twice: to warm up, and to be timed."""

SCAN = """
    SELECT count(*) OVER (), m.number
      FROM messages m JOIN search_texts s ON s.inbox = m.inbox AND s.message = m.number
     WHERE m.is_hidden = 0 AND (%(inbox)s::bigint IS NULL OR m.inbox = %(inbox)s)
       AND s.searchable ILIKE %(pattern)s
     ORDER BY m.date DESC, m.number DESC LIMIT 50
"""
TRIGRAMS = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    """CREATE INDEX IF NOT EXISTS bench_trigrams
           ON search_texts USING gin (searchable gin_trgm_ops)""",
    "ANALYZE",
)
SIZES = """
    SELECT pg_database_size(current_database()),
           (SELECT sum(pg_relation_size(relid))::bigint FROM pg_partition_tree('bench_trigrams')),
           (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
             WHERE relkind = 'r' AND relname LIKE 'search\\_%'
               AND relname NOT LIKE 'search\\_texts%')
"""


@dataclass(frozen=True)
class OurResult:
    """Our result: the total, and the times between writes and after one."""

    total: int
    ms: float
    cold_ms: float


@dataclass(frozen=True)
class Row:
    """One question in one scope."""

    question: Question
    scope: str
    ours: OurResult
    ilike_ms: float
    trigrams_ms: float
    is_same: bool

    @property
    def is_good(self) -> bool:
        is_fast = (
            self.ilike_ms >= TIMES_ILIKE * self.ours.ms
            and self.trigrams_ms >= TIMES_TRIGRAMS * self.ours.ms
        )
        return self.is_same and (is_fast or self.question.kind not in ONE_WORD)

    def cells(self) -> list[object]:
        over = (self.ilike_ms / self.ours.ms, self.trigrams_ms / self.ours.ms)
        times = (
            f"{ms:.2f}" for ms in (self.ours.ms, self.ours.cold_ms, self.ilike_ms, self.trigrams_ms)
        )
        verdict = "" if self.is_good else "missed" if self.is_same else "differs"
        return [self.question.kind, self.scope, self.ours.total, *times,
                *(f"{ratio:.0f}x" for ratio in over), verdict]  # fmt: skip


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of the work, and its milliseconds with cached data."""
    work()
    took, result = [], None
    while not took or (took[0] < SLOW_MS and len(took) < 5):
        started = time.perf_counter()
        result = work()
        took.append((time.perf_counter() - started) * 1e3)
    return result, statistics.median(took)


class Baselines:
    """The same query on PostgreSQL itself, without our index."""

    def __init__(self, url: str) -> None:
        # A cached plan would still use a disabled access method.
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
        started = time.perf_counter()
        for statement in TRIGRAMS:
            self._connection.execute(statement.encode())
        self.building_s = time.perf_counter() - started

    def ask(self, q: str, inbox: int | None, *, with_trigrams: bool) -> tuple[int, float]:
        """The total, and the time."""
        way = b"on" if with_trigrams else b"off"
        self._connection.execute(b"SET enable_bitmapscan = " + way)
        escaped = q.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        params = {"inbox": inbox, "pattern": f"%{escaped}%"}
        rows, ms = timed(lambda: self._connection.execute(SCAN, params).fetchall())
        return (rows[0][0] if rows else 0), ms

    def sizes(self) -> tuple[int, ...]:
        """Bytes of the whole database, of the trigrams, and of our index."""
        row = self._connection.execute(SIZES.encode()).fetchone()
        return tuple(int(value or 0) for value in row or ())


async def big_inbox(engine: PostgresEngine) -> int:
    """The number of the inbox that holds a third of all mail."""
    row = await engine.read(
        lambda tx: tx.one("SELECT number FROM inboxes WHERE id = :id", id=BIG_INBOX)
    )
    assert row is not None
    return int(row[0])


async def ask_ours(engine: PostgresEngine, q: str, inbox: int | None) -> OurResult:
    """The total, and the times of a query between writes and after one."""
    searcher, query = (
        IndexSearcher(),
        SearchQuery(q=q, inboxes=EVERYTHING if inbox is None else only(inbox)),
    )

    def ask(tx: Transaction) -> tuple[int, float]:
        started = time.perf_counter()
        total = searcher.search(tx, query).total
        return total, (time.perf_counter() - started) * 1e3

    async def median_ms(*, after_write: bool) -> tuple[int, float]:
        asked = []
        for _ in range(TIMES):
            if after_write:
                await engine.write(write_something)
            asked.append(await engine.read(ask))
        return asked[0][0], statistics.median(ms for _, ms in asked[1:])

    total, ms = await median_ms(after_write=False)
    return OurResult(total, ms, (await median_ms(after_write=True))[1])


async def run(url: str, messages: int) -> bool:
    """Load the database, run all queries in three ways, and print the results."""
    engine = PostgresEngine.open(url)
    started = time.perf_counter()
    loaded = await fill(engine, messages)
    if loaded.added:
        cpu = f"{loaded.adding_s:.0f} s of our CPU to add, {loaded.merging_s:.0f} to index"
        print(f"{loaded.added} messages in {time.perf_counter() - started:.0f} s; {cpu}")
    asked = [
        (question, scope, inbox)
        for question in fixed(Corpus())
        for scope, inbox in (("30 %", await big_inbox(engine)), ("all", None))
    ]
    await engine.write(lambda tx: tx.run("DROP INDEX IF EXISTS bench_trigrams"))
    ours = [await ask_ours(engine, question.q, inbox) for question, _, inbox in asked]
    others, rows = await asyncio.to_thread(Baselines, url), []
    for (question, scope, inbox), own in zip(asked, ours, strict=True):
        ilike_total, ilike = others.ask(question.q, inbox, with_trigrams=False)
        total, trigrams = others.ask(question.q, inbox, with_trigrams=True)
        is_same = own.total == ilike_total == total
        rows.append(Row(question, scope, own, ilike, trigrams, is_same))
    await engine.close()
    table([["query", "scope", "matches", "ms", "after a write", "ILIKE", "pg_trgm", "ILIKE / ours",
            "pg_trgm / ours", ""], *(row.cells() for row in rows)])  # fmt: skip
    whole, grams, ours_bytes = (size / 2**20 for size in others.sizes())
    print(f"{whole:.0f} MB in all; our index {ours_bytes:.0f}, the trigrams {grams:.0f}", end="")
    print(f" (built in {others.building_s:.0f} s)")
    return all(row.is_good for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.search.postgres", description=__doc__)
    parser.add_argument("url", nargs="?", help="postgresql://…; without it, a server of its own")
    parser.add_argument("-n", "--messages", type=int, default=100_000)
    options = parser.parse_args()
    with ExitStack() as stack:
        url = options.url
        if url is None:
            url = stack.enter_context(postgres.running()).new_database()
        is_good = asyncio.run(run(url, options.messages))
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
