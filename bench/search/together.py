"""Searching and delivering while another process imports and merges."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from bench.search.corpus import Corpus
from bench.search.loading import BATCH, Loaded, new_message
from bench.search.measuring import Spread, cpu_ms
from bench.search.questions import Question
from postroom.pipeline.importing import BATCH_MAILS
from postroom.pipeline.upkeep import TIDY_STEPS
from postroom.store.seal import Seal
from postroom.store.search.find import Finder
from postroom.store.search.merging import merge_once
from postroom.store.search.wanted import Wanted
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.store import SqlStore

_SEARCHING_S = 15.0
_WAITING = 6_000
_DELIVERIES = 200


async def searches(loaded: Loaded, questions: list[Question]) -> Spread:
    """CPU of a mix of searches over everything, asked again and again for a while."""
    finder, found = Finder(), list[float]()
    until = time.monotonic() + _SEARCHING_S
    while time.monotonic() < until:
        for question in questions:
            wanted = Wanted(q=question.q)
            work = lambda tx, w=wanted: cpu_ms(lambda: finder.find(tx, w), 1)  # noqa: E731
            found.append((await loaded.engine.read(work))[1])
    return Spread.of(found)


async def _present(loaded: Loaded) -> int:
    row = await loaded.engine.read(lambda tx: tx.one("SELECT count(*) FROM messages"))
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
    quiet = await searches(loaded, questions)
    child, before = await _start(folder, "import", first), await _present(loaded)
    busy = await searches(loaded, questions)
    came = await _present(loaded) - before
    await _stop(child)
    print("\n## Beside another process\n")
    print(f"searches in quiet: {quiet} ms of CPU (p50 / p95 / mean)")
    print(f"searches beside an import: {busy} ms of CPU, {busy.over(quiet)} times", end="")
    print(f" ({came} messages came in {_SEARCHING_S:.0f} s)")
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
    """The other process: import and merge, as much at once as `postroom import`, or merge only."""
    engine = SqliteEngine.open(folder / "postroom.db")
    store, corpus = SqlStore(engine, Seal(b"key")), Corpus()
    print("ready", flush=True)
    while True:
        if what == "import":
            mails = corpus.mails(first, first + BATCH_MAILS)
            await store.add_messages([new_message(mail) for mail in mails])
            first += BATCH_MAILS
        for _ in range(TIDY_STEPS):
            if not await merge_once(engine):
                break


if __name__ == "__main__":
    asyncio.run(_work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
