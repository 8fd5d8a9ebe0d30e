"""Searches and deliveries while another process imports and merges."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.search.corpus import Corpus
from bench.search.loading import BATCH, Loaded, new_message
from bench.search.measuring import Spread, cpu_ms
from bench.search.questions import Question
from postroom.model.view import EVERYTHING
from postroom.pipeline.maintenance import COMPACT_EVERY, COMPACT_STEPS
from postroom.pipeline.transfer.import_export import BATCH_MAILS
from postroom.store.audited_store import AuditHmac
from postroom.store.search.index import IndexSearcher, SearchQuery, compact
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.store import Store

_SEARCHING_S, _LONG_S = 15.0, 60.0
_WAITING = 6_000
_DELIVERIES = 200


@dataclass(frozen=True, slots=True)
class SearchTimes:
    """CPU times of searches, and the largest buffer."""

    spread: Spread
    waiting: int


async def searches(loaded: Loaded, questions: list[Question], seconds: float) -> SearchTimes:
    """Repeat a mix of searches over everything for a while."""
    searcher, found, waiting = IndexSearcher(), list[float](), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for question in questions:
            query = SearchQuery(inboxes=EVERYTHING, q=question.q)
            work = lambda tx, w=query: cpu_ms(lambda: searcher.search(tx, w), 1)  # noqa: E731
            found.append((await loaded.engine.read(work))[1])
        waiting = max(waiting, await _count(loaded, "search_buffer"))
    return SearchTimes(Spread.of(found), waiting)


async def _count(loaded: Loaded, table: str) -> int:
    row = await loaded.engine.read(lambda tx: tx.one(f"SELECT count(*) FROM {table}"))
    return int(row[0])


async def deliveries(loaded: Loaded, first: int) -> list[float]:
    """Wall-clock milliseconds of single deliveries."""
    took = []
    for mail in Corpus().mails(first, first + _DELIVERIES):
        started = time.perf_counter()
        await loaded.store.add_messages([new_message(mail)])
        took.append((time.perf_counter() - started) * 1_000)
    return took


async def measure(loaded: Loaded, folder: Path, questions: list[Question], first: int) -> None:
    """Print the cost of searches and deliveries, alone and beside another process."""
    print("\n## Beside other processes\n")
    quiet = (await searches(loaded, questions, _SEARCHING_S)).spread
    print(f"searches in quiet: {quiet} ms of CPU (p50 / p95 / mean)")
    for name, others, seconds in (
        ("an import", ("import",), _SEARCHING_S),
        ("an import and a server", ("import", "serve"), _LONG_S),
    ):
        before = await _count(loaded, "messages")
        children = [await _start(folder, what, first) for what in others]
        busy = await searches(loaded, questions, seconds)
        came = await _count(loaded, "messages") - before
        for child in children:
            await _stop(child)
        print(
            f"searches beside {name}: {busy.spread} ms, {busy.spread.ratio_to(quiet)} times", end=""
        )
        print(f" ({came} messages came in {seconds:.0f} s, at most {busy.waiting} waited)")
        first += 10_000_000
    alone = await deliveries(loaded, first)
    await _fill(loaded.store, first + _DELIVERIES)
    child = await _start(folder, "merge", 0)
    beside = await deliveries(loaded, first + 1_000_000)
    await _stop(child)
    for name, took in (("in quiet", alone), ("beside a merge", beside)):
        took.sort()
        print(f"deliveries {name}: median {took[len(took) // 2]:.0f}, longest {took[-1]:.0f} ms")


async def _fill(store: Store, first: int) -> None:
    """Fill the buffer with so many messages that merging them takes a while."""
    mails = Corpus().mails(first, first + _WAITING)
    new = [new_message(mail) for mail in mails]
    for at in range(0, len(new), BATCH):
        await store.add_messages(new[at : at + BATCH])


async def _start(folder: Path, what: str, first: int) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "bench.search.concurrent_load", str(folder), what, str(first))
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    await child.stdout.readline()
    return child


async def _stop(child: asyncio.subprocess.Process) -> None:
    child.kill()
    await child.wait()


async def _work(folder: Path, what: str, first: int) -> None:
    """The other process: imports, imports and compacts, or only compacts."""
    engine = SqliteEngine.open(folder / "postroom.db")
    print("ready", flush=True)
    if what == "import":
        await _import(engine, first)
    pause_s = COMPACT_EVERY.total_seconds() if what == "serve" else 0
    await asyncio.gather(*(_merge(engine, pause_s) for _ in range(2 if what == "serve" else 1)))


async def _import(engine: SqliteEngine, first: int) -> None:
    """In batches, and with compaction, like `postroom import`."""
    store, corpus = Store(engine, AuditHmac(b"key")), Corpus()
    while True:
        mails = corpus.mails(first, first + BATCH_MAILS)
        await store.add_messages([new_message(mail) for mail in mails])
        first += BATCH_MAILS
        for _ in range(COMPACT_STEPS):
            if not await compact(engine):
                break


async def _merge(engine: SqliteEngine, pause_s: float) -> None:
    while True:
        if not await compact(engine):
            await asyncio.sleep(pause_s)


if __name__ == "__main__":
    asyncio.run(_work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
