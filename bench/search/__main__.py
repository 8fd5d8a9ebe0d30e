"""How quick searching is: `python -m bench.search --messages 100000 [--data FOLDER]`.

A corpus that is always the same goes into a store by its own door; then queries of fixed classes
and a random mix are timed beside a LIKE scan and beside FTS5 trigrams. All times are CPU times.
A folder that is kept is used again: nothing is loaded twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.search import together
from bench.search.baselines import Baselines
from bench.search.corpus import Corpus
from bench.search.loading import BIG_INBOX, Loaded, load
from bench.search.measuring import PeakMemory, Spread, calibration_ms, cpu_ms, table
from bench.search.questions import Question, fixed, mix
from postroom.store.search.find import Finder
from postroom.store.search.wanted import Answer, Wanted

BIG, EVERYTHING = "inbox with 30 %", "everything"
SEED = 465
Timed = Callable[[Question, int | None], float]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.search", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="size of the corpus")
    parser.add_argument("--data", type=Path, help="folder to keep and to use again")
    parser.add_argument("--scans", type=int, default=465, help="queries of the mix to scan for")
    parser.add_argument(
        "--together", action="store_true", help="also beside another process; adds messages"
    )
    parser.add_argument("--no-fts", action="store_true", help="build no trigrams to compare with")
    parser.add_argument("--no-baselines", action="store_true", help="time only the index")
    return parser.parse_args()


class Bench:
    """A loaded store, the questions, and what is compared with it."""

    def __init__(self, loaded: Loaded, folder: Path, options: argparse.Namespace) -> None:
        self.engine = loaded.engine
        self.folder = folder
        self.options = options
        self.corpus = Corpus()
        self.finder = Finder()
        self.baselines: Baselines | None = None

    async def time(self, wanted: Wanted, times: int = 3) -> tuple[Answer, float]:
        """The answer of the index, and its CPU inside the store."""
        work = lambda tx: cpu_ms(lambda: self.finder.find(tx, wanted), times)  # noqa: E731
        answer, took = await self.engine.read(work)
        return answer, took

    async def inbox(self, inbox_id: str) -> int:
        row = await self.engine.read(
            lambda tx: tx.one("SELECT number FROM inboxes WHERE id = :id", id=inbox_id)
        )
        return int(row[0])

    async def classes(self) -> None:
        """Every class in every scope."""
        big = await self.inbox(BIG_INBOX)
        rows: list[list[object]] = [
            ["query", "text", "matches", "ms", "LIKE", "FTS5", "all matches", "ms", "LIKE", "FTS5",
             "deep page"]
        ]  # fmt: skip
        for question in fixed(self.corpus):
            row: list[object] = [question.kind, question.q]
            for number, scope in (((big,), 0), (None, None)):
                answer, took = await self.time(Wanted(q=question.q, inboxes=number), 5)
                row += [answer.total, f"{took:.2f}"]
                row += [f"{took_by(question, scope) / took:.0f}x"
                        for took_by in self._others()]  # fmt: skip
            deep = Wanted(q=question.q, offset=answer.total // 2)
            _, deep_ms = await self.time(deep, 5)
            rows.append([*row, f"{deep_ms / took:.1f}x"])
        print("\n## Query classes: CPU ms (how many times longer the others take)\n")
        table(rows)

    def _others(self) -> list[Timed]:
        baselines = self.baselines
        if baselines is None:
            return [lambda *_: float("nan")] * 2
        fts: Timed = lambda *_: float("nan")  # noqa: E731
        if baselines.has_grams:
            fts = lambda asked, scope: cpu_ms(lambda: baselines.fts(asked.q, scope), 2)[1]  # noqa: E731
        return [lambda asked, scope: cpu_ms(lambda: baselines.like(asked.q, scope), 1)[1], fts]

    async def small_scopes(self) -> None:
        """Threads and small inboxes, and lists without a text."""
        big = await self.inbox(BIG_INBOX)
        small = await self.engine.read(lambda tx: tx.one(SMALL_INBOX))
        thread = await self.engine.read(lambda tx: tx.one(SOME_THREAD))
        cases = {
            f"a thread of {thread[1]}": Wanted(thread=thread[0], q="of the"),
            f"an inbox of {small[1]}, a word": Wanted(inboxes=(small[0],), q="regards"),
            f"an inbox of {small[1]}, a phrase": Wanted(inboxes=(small[0],), q="of the"),
            "first page of the large inbox": Wanted(inboxes=(big,)),
            "deep page of the large inbox": Wanted(
                inboxes=(big,), offset=int(0.15 * self.options.messages)
            ),
            "first page of everything": Wanted(),
            "from an address": Wanted(sender=f"\x1f{self.corpus.people[3][0]}\x1e"),
            "from a domain, with a word": Wanted(sender="pel.example\x1e", q="invoice"),
        }
        rows: list[list[object]] = [["scope", "matches", "ms"]]
        for name, wanted in cases.items():
            answer, took = await self.time(wanted, 9)
            rows.append([name, answer.total, f"{took:.2f}"])
        print("\n## Small scopes, lists, senders: CPU ms\n")
        table(rows)

    async def mix(self) -> dict[str, dict[str, Spread]]:
        """The random mix; the slow baselines may be asked a part of it only."""
        questions = mix(self.corpus, self.options.messages, SEED)
        sample = set(random.Random(SEED).sample(range(len(questions)), self._scans(questions)))
        found: dict[str, dict[str, Spread]] = {}
        for name, inbox_id, scope in ((BIG, BIG_INBOX, 0), (EVERYTHING, None, None)):
            inboxes = None if inbox_id is None else (await self.inbox(inbox_id),)
            ours = [(await self.time(Wanted(q=x.q, inboxes=inboxes)))[1] for x in questions]
            found[name] = {"index": Spread.of(ours)}
            if self.baselines is None:
                continue
            like, fts = self._others()
            if self.baselines.has_grams:
                found[name]["FTS5"] = Spread.of([fts(x, scope) for x in questions])
            chosen = [x for at, x in enumerate(questions) if at in sample]
            found[name]["LIKE"] = Spread.of([like(x, scope) for x in chosen])
        return found

    def _scans(self, questions: list[Question]) -> int:
        return min(self.options.scans, len(questions))

    async def size(self) -> tuple[int, int]:
        """Bytes of the index on disk, and of the folded texts that it is made of."""
        index = await self.engine.read(lambda tx: tx.one(INDEX_BYTES))
        text = await self.engine.read(lambda tx: tx.one(TEXT_BYTES))
        return int(index[0]), int(text[0])


INDEX_BYTES = """
    SELECT sum(pgsize) FROM dbstat
     WHERE aggregate = TRUE AND name LIKE '%search%' AND name <> 'search_texts'
"""
TEXT_BYTES = """
    SELECT sum(octet_length(searchable) + octet_length(senders) + octet_length(recipients))
      FROM search_texts
"""
SMALL_INBOX = """
    SELECT inbox, count(*) AS n FROM messages GROUP BY inbox ORDER BY abs(n - 200) LIMIT 1
"""
SOME_THREAD = "SELECT number, message_count FROM threads ORDER BY message_count DESC LIMIT 1"


def show_mix(found: dict[str, dict[str, Spread]], calibration: float) -> None:
    rows: list[list[object]] = [
        ["scope", "by", "p50 / p95 / mean, ms", "in calibration loops", "times the index"]
    ]
    for scope, spreads in found.items():
        for name, spread in spreads.items():
            loops = " / ".join(
                f"{value / calibration:.4f}" for value in (spread.p50, spread.p95, spread.mean)
            )
            rows.append([scope, name, spread, loops, spread.over(spreads["index"])])
    print("\n## Random mix: CPU, page of 50 and exact total\n")
    table(rows)


async def run(options: argparse.Namespace, folder: Path) -> None:
    memory = PeakMemory()
    loaded = await load(folder, options.messages)
    facts = remember(folder, loaded, memory.peak_mb)
    memory.peak_mb = 0.0
    calibration = calibration_ms()
    bench = Bench(loaded, folder, options)
    if not options.no_baselines:
        bench.baselines = Baselines(folder, options.messages, with_grams=not options.no_fts)
    index_bytes, text_bytes = await bench.size()
    print(f"# {options.messages} messages, {text_bytes / 1e6:.0f} MB of folded text")
    print(f"\ncalibration loop: {calibration:.1f} ms of CPU")
    print(f"ingest: {facts}")
    print(f"index: {index_bytes / text_bytes:.2f} bytes for each byte of text")
    if bench.baselines is not None and bench.baselines.has_grams:
        grams = bench.baselines.gram_bytes() / text_bytes
        built = bench.baselines.build_s
        print(f"FTS5 trigrams: {grams:.2f} bytes for each byte of text, built in {built:.0f} s")
    await bench.classes()
    await bench.small_scopes()
    show_mix(await bench.mix(), calibration)
    print(f"\nmemory: {memory.peak_mb:.0f} MB at most while searching")
    await surfaces(folder)
    if options.together:
        questions = mix(bench.corpus, options.messages, SEED)[:200]
        await together.measure(loaded, folder, questions, options.messages)
    await loaded.engine.close()


async def surfaces(folder: Path) -> None:
    from bench.search.surfaces import overheads

    took = await overheads(folder, BIG_INBOX, "regards")
    print("\n## Surfaces: CPU ms of a search with rows and excerpts, page of 50\n")
    over = {name: value - took["store"] for name, value in took.items()}
    rows = [[name, f"{value:.2f}", f"{over[name]:.2f}"] for name, value in took.items()]
    table([["through", "ms", "above the store"], *rows])


def remember(folder: Path, loaded: Loaded, peak_mb: float) -> dict[str, Any]:
    """What loading cost, kept beside the data for when they are used again."""
    path = folder / "loaded.json"
    if loaded.adding_s:
        count = loaded.added
        facts = {
            "messages": count,
            "adding_ms": round(loaded.adding_s / count * 1e3, 3),
            "merging_ms": round(loaded.merging_s / count * 1e3, 3),
            "of_which_settling_ms": round(loaded.settling_s / count * 1e3, 3),
            "per_second": round(count / (loaded.adding_s + loaded.merging_s)),
            "calibration_ms": round(calibration_ms(), 1),
            "peak_mb": round(peak_mb),
        }
        path.write_text(json.dumps(facts))
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def main() -> None:
    options = arguments()
    started = time.process_time()
    if options.data is not None:
        asyncio.run(run(options, options.data))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(run(options, Path(folder)))
    print(f"\n{time.process_time() - started:.0f} s of CPU in all")


if __name__ == "__main__":
    main()
