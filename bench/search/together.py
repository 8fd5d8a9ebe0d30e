"""Searching and delivering while another process imports and merges."""

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
from postroom.pipeline.importing import BATCH_MAILS
from postroom.pipeline.upkeep import TIDY_EVERY, TIDY_STEPS
from postroom.store.seal import Seal
from postroom.store.search.find import Finder
from postroom.store.search.merging import merge_once
from postroom.store.search.wanted import Wanted
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.store import SqlStore

_SEARCHING_S, _LONG_S = 15.0, 60.0
_WAITING = 6_000
_DELIVERIES = 200


@dataclass(frozen=True, slots=True)
class Searched:
    """CPU of searches, and the most messages that were seen in no segment yet."""

    spread: Spread
    waiting: int


async def searches(loaded: Loaded, questions: list[Question], seconds: float) -> Searched:
    """A mix of searches over everything, asked again and again for a while."""
    finder, found, waiting = Finder(), list[float](), 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for question in questions:
            wanted = Wanted(q=question.q)
            work = lambda tx, w=wanted: cpu_ms(lambda: finder.find(tx, w), 1)  # noqa: E731
            found.append((await loaded.engine.read(work))[1])
        waiting = max(waiting, await _count(loaded, "search_tail"))
    return Searched(Spread.of(found), waiting)


async def _count(loaded: Loaded, table: str) -> int:
    row = await loaded.engine.read(lambda tx: tx.one(f"SELECT count(*) FROM {table}"))
    return int(row[0])


async def deliveries(loaded: Loaded, first: int) -> list[float]:
    """How long single deliveries take, in milliseconds of the clock."""
    took = []
    for mail in Corpus().mails(first, first + _DELIVERIES):
        started = time.perf_counter()
        await loaded.store.add_messages([new_message(mail)])
        took.append((time.perf_counter() - started) * 1_000)
    return took


async def measure(loaded: Loaded, folder: Path, questions: list[Question], first: int) -> None:
    """Print what searches and deliveries cost in quiet, and beside another process."""
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
        print(f"searches beside {name}: {busy.spread} ms, {busy.spread.over(quiet)} times", end="")
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


async def _fill(store: SqlStore, first: int) -> None:
    """Let so many messages wait in the tail that merging them takes a while."""
    mails = Corpus().mails(first, first + _WAITING)
    new = [new_message(mail) for mail in mails]
    for at in range(0, len(new), BATCH):
        await store.add_messages(new[at : at + BATCH])


async def _start(folder: Path, what: str, first: int) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "bench.search.together", str(folder), what, str(first))
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    await child.stdout.readline()
    return child


async def _stop(child: asyncio.subprocess.Process) -> None:
    child.kill()
    await child.wait()


async def _work(folder: Path, what: str, first: int) -> None:
    """The other process: it imports, does what a server does for the index, or merges only."""
    engine = SqliteEngine.open(folder / "postroom.db")
    print("ready", flush=True)
    if what == "import":
        await _import(engine, first)
    pause_s = TIDY_EVERY.total_seconds() if what == "serve" else 0
    await asyncio.gather(*(_merge(engine, pause_s) for _ in range(2 if what == "serve" else 1)))


async def _import(engine: SqliteEngine, first: int) -> None:
    """As many at once, and as much work on the index for them, as `postroom import`."""
    store, corpus = SqlStore(engine, Seal(b"key")), Corpus()
    while True:
        mails = corpus.mails(first, first + BATCH_MAILS)
        await store.add_messages([new_message(mail) for mail in mails])
        first += BATCH_MAILS
        for _ in range(TIDY_STEPS):
            if not await merge_once(engine):
                break


async def _merge(engine: SqliteEngine, pause_s: float) -> None:
    while True:
        if not await merge_once(engine):
            await asyncio.sleep(pause_s)


if __name__ == "__main__":
    asyncio.run(_work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
