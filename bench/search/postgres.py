"""Search on PostgreSQL beside ILIKE and pg_trgm: `python -m bench.search.postgres URL [-n N]`.

The database must be empty, or hold the same corpus from before. Times are wall clock, medians of
several runs on warm data, each a page of 50 and the exact total; read them as ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable

import psycopg

from bench.search.corpus import Corpus
from bench.search.loading import BIG_INBOX, fill
from bench.search.measuring import table
from bench.search.questions import fixed
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.search.find import Finder
from postroom.store.search.wanted import Wanted
from postroom.store.transaction import Transaction

SCAN = """
    SELECT count(*) OVER (), m.number
      FROM messages m JOIN search_texts s ON s.message = m.number
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


def timed(work: Callable[[], object], times: int) -> float:
    """The median of some runs in milliseconds, after one that warms up."""
    work()
    took = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        took.append((time.perf_counter() - started) * 1e3)
    return statistics.median(took)


class Others:
    """The same question to PostgreSQL itself, without our index."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        for statement in TRIGRAMS:
            self._connection.execute(statement)

    def ms(self, q: str, inbox: int | None, *, with_trigrams: bool) -> float:
        self._connection.execute(f"SET enable_bitmapscan = {'on' if with_trigrams else 'off'}")
        escaped = q.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        params = {"inbox": inbox, "pattern": f"%{escaped}%"}
        return timed(lambda: self._connection.execute(SCAN, params).fetchall(), 2)


async def run(url: str, messages: int) -> None:
    engine = PostgresEngine.open(url)
    loaded = await fill(engine, messages)
    if loaded.added:
        print(f"{loaded.added} messages added")
    others, finder = await asyncio.to_thread(Others, url), Finder()
    row = await engine.read(
        lambda tx: tx.one("SELECT number FROM inboxes WHERE id = :id", id=BIG_INBOX)
    )
    assert row is not None
    rows: list[list[object]] = [
        ["query", "scope", "matches", "ms", "ILIKE", "pg_trgm", "ILIKE / ours", "pg_trgm / ours"]
    ]
    for question in fixed(Corpus()):
        for scope, inbox in (("30 %", int(row[0])), ("all", None)):
            wanted = Wanted(q=question.q, inboxes=None if inbox is None else (inbox,))

            def ask(tx: Transaction, wanted: Wanted = wanted) -> tuple[int, float]:
                total = finder.find(tx, wanted).total
                return total, timed(lambda: finder.find(tx, wanted), 5)

            total, ours = await engine.read(ask)
            like = others.ms(question.q, inbox, with_trigrams=False)
            grams = others.ms(question.q, inbox, with_trigrams=True)
            rows.append(
                [question.kind, scope, total, f"{ours:.2f}", f"{like:.1f}", f"{grams:.1f}",
                 f"{like / ours:.0f}x", f"{grams / ours:.0f}x"]
            )  # fmt: skip
    table(rows)
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.search.postgres", description=__doc__)
    parser.add_argument("url", help="postgresql://…")
    parser.add_argument("-n", "--messages", type=int, default=100_000)
    options = parser.parse_args()
    asyncio.run(run(options.url, options.messages))


if __name__ == "__main__":
    main()
