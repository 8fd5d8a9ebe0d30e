"""The speed of searches: `python -m bench.search --messages 100000 [--data FOLDER]`.

Loads a deterministic corpus into a store, and compares queries of fixed classes and a random mix
with a LIKE scan and with FTS5 trigrams. All times are CPU times. Each query has a transaction of
its own. Two times are reported: *between writes*, where the store has cached the messages of a
scope, and *after a write*, where it has not. It fails if the results differ. With `--data`, the
loaded store is kept and used again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.search import concurrent_load
from bench.search.baselines import Baselines
from bench.search.corpus import Corpus
from bench.search.loading import BIG_INBOX, Loaded, load, write_something
from bench.search.measuring import PeakMemory, Spread, calibration_ms, cpu_ms, table
from bench.search.questions import Question, fixed, mix
from postroom.model.view import EVERYTHING, only
from postroom.store.search.index import IndexSearcher, SearchQuery, SearchResult
from postroom.store.search.query.scan import scan

BIG, ALL = "inbox with 30 %", "everything"
SEED = 465
ROUNDS = 3
Timed = Callable[[Question, int | None], tuple[int | None, float]]


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
    """A loaded store, the queries, and the baselines."""

    def __init__(self, loaded: Loaded, folder: Path, options: argparse.Namespace) -> None:
        self.engine = loaded.engine
        self.folder = folder
        self.options = options
        self.corpus = Corpus()
        self.searcher = IndexSearcher()
        self.baselines: Baselines | None = None

    async def ask(
        self, query: SearchQuery, *, after_write: bool = False
    ) -> tuple[SearchResult, float]:
        """The result of one query, and its CPU time in the store."""
        if after_write:
            await self.engine.write(write_something)
        work = lambda tx: cpu_ms(lambda: self.searcher.search(tx, query), 1)  # noqa: E731
        answer, took = await self.engine.read(work)
        return answer, took

    async def time(
        self, query: SearchQuery, times: int = 5, *, after_write: bool = False
    ) -> tuple[SearchResult, float]:
        """The result, and the median CPU time of several transactions."""
        asked = [await self.ask(query, after_write=after_write) for _ in range(times)]
        return asked[0][0], median(took for _, took in asked)

    async def inbox(self, inbox_id: str) -> int:
        row = await self.engine.read(
            lambda tx: tx.one("SELECT number FROM inboxes WHERE id = :id", id=inbox_id)
        )
        return int(row[0])

    async def classes(self) -> None:
        """Every class in every scope."""
        big = await self.inbox(BIG_INBOX)
        rows: list[list[object]] = [
            ["query", "text", "matches", "ms", "after a write", "LIKE", "FTS5",
             "all matches", "ms", "after a write", "LIKE", "FTS5", "deep page"]
        ]  # fmt: skip
        for question in fixed(self.corpus):
            row: list[object] = [question.kind, question.q]
            for number, scope in ((only(big), 0), (EVERYTHING, None)):
                query = SearchQuery(q=question.q, inboxes=number)
                answer, took = await self.time(query)
                _, cold = await self.time(query, after_write=True)
                row += [answer.total, f"{took:.2f}", f"{cold:.2f}"]
                for ask in self._others():
                    total, other = ask(question, scope)
                    compare(question, answer.total, total)
                    row.append(f"{other / took:.0f}x")
            deep = SearchQuery(inboxes=EVERYTHING, q=question.q, offset=answer.total // 2)
            _, deep_ms = await self.time(deep)
            rows.append([*row, f"{deep_ms / took:.1f}x"])
        print("\n## Query classes: CPU ms between writes, and after one", end="")
        print(" (how many times as long as between writes the others take)\n")
        table(rows)

    async def filters(self) -> None:
        """Words, unread messages, subjects and the oldest first, compared with a scan."""
        big = await self.inbox(BIG_INBOX)
        cases: dict[str, dict[str, Any]] = {
            "words, common": {"words": ("regards", "invoice")},
            "words, three": {"words": ("meeting", "hello", "of the")},
            "words, none": {"words": ("regards", "zzqzzq")},
            "unread": {"without_flags": ("seen",)},
            "unread, with a word": {"without_flags": ("seen",), "q": "regards"},
            "flagged": {"flags": ("flagged",)},
            "subject, common word": {"subject": "invoice"},
            "subject, phrase": {"subject": "re: invoice"},
            "oldest first": {"oldest_first": True},
            "oldest first, with a word": {"oldest_first": True, "q": "regards"},
        }
        rows: list[list[object]] = [
            ["query", "matches", "ms", "after a write", "scan",
             "all matches", "ms", "after a write", "scan", "deep page"]
        ]  # fmt: skip
        for name, asked in cases.items():
            row: list[object] = [name]
            for inboxes in (only(big), EVERYTHING):
                query = SearchQuery(inboxes=inboxes, **asked)
                answer, took = await self.time(query)
                _, cold = await self.time(query, after_write=True)
                scanned = await self._scan(query) if self.baselines else None
                if scanned is not None and scanned[0] != answer:
                    sys.exit(f"{name}: the index finds something else than a scan")
                times = f"{scanned[1] / took:.0f}x" if scanned else "nanx"
                row += [answer.total, f"{took:.2f}", f"{cold:.2f}", times]
            deep = SearchQuery(inboxes=EVERYTHING, offset=answer.total // 2, **asked)
            _, deep_ms = await self.time(deep)
            rows.append([*row, f"{deep_ms / took:.1f}x"])
        print("\n## Words, flags, subjects, order: CPU ms between writes, and after one", end="")
        print(" (how many times as long a scan takes)\n")
        table(rows)

    async def _scan(self, query: SearchQuery) -> tuple[SearchResult, float]:
        """The result of reading every message, and its CPU time."""
        work = lambda tx: cpu_ms(lambda: scan(tx, query), 1)  # noqa: E731
        answer, took = await self.engine.read(work)
        return answer, took

    def _others(self) -> list[Timed]:
        """The scan and the trigrams."""
        baselines = self.baselines
        if baselines is None:
            return [skipped, skipped]
        like: Timed = lambda asked, scope: total_ms(lambda: baselines.like(asked.q, scope), 1)  # noqa: E731
        fts: Timed = lambda asked, scope: total_ms(lambda: baselines.fts(asked.q, scope), 2)  # noqa: E731
        return [like, fts if baselines.has_grams else skipped]

    async def small_scopes(self) -> None:
        """Threads, small inboxes, and lists without a text."""
        big = await self.inbox(BIG_INBOX)
        small = await self.engine.read(lambda tx: tx.one(SMALL_INBOX))
        thread = await self.engine.read(lambda tx: tx.one(SOME_THREAD))
        cases = {
            f"a thread of {thread[1]}": SearchQuery(
                inboxes=EVERYTHING, thread=thread[0], q="of the"
            ),
            f"an inbox of {small[1]}, a word": SearchQuery(inboxes=only(small[0]), q="regards"),
            f"an inbox of {small[1]}, a phrase": SearchQuery(inboxes=only(small[0]), q="of the"),
            "first page of the large inbox": SearchQuery(inboxes=only(big)),
            "deep page of the large inbox": SearchQuery(
                inboxes=only(big), offset=int(0.15 * self.options.messages)
            ),
            "first page of everything": SearchQuery(inboxes=EVERYTHING),
            "from an address": SearchQuery(
                inboxes=EVERYTHING, sender=f"\x1f{self.corpus.people[3][0]}\x1e"
            ),
            "from a domain, with a word": SearchQuery(
                inboxes=EVERYTHING, sender="pel.example\x1e", q="invoice"
            ),
        }
        rows: list[list[object]] = [["scope", "matches", "ms", "after a write"]]
        for name, query in cases.items():
            answer, took = await self.time(query, 9)
            _, cold = await self.time(query, 9, after_write=True)
            rows.append([name, answer.total, f"{took:.2f}", f"{cold:.2f}"])
        print("\n## Small scopes, lists, senders: CPU ms between writes, and after one\n")
        table(rows)

    async def mix(self) -> dict[str, dict[str, Spread]]:
        """The random mix; slow baselines run a part of it only."""
        questions = mix(self.corpus, self.options.messages, SEED)
        sample = set(random.Random(SEED).sample(range(len(questions)), self._scans(questions)))
        found: dict[str, dict[str, Spread]] = {}
        for name, inbox_id, scope in ((BIG, BIG_INBOX, 0), (ALL, None, None)):
            inboxes = EVERYTHING if inbox_id is None else only(await self.inbox(inbox_id))
            query = [SearchQuery(q=question.q, inboxes=inboxes) for question in questions]
            totals, times = await self._each(query)
            _, cold = await self._each(query, after_write=True)
            found[name] = {"index": Spread.of(times), "index after a write": Spread.of(cold)}
            asked = list(zip(questions, totals, strict=True))
            like, fts = self._others()
            if fts is not skipped:
                found[name]["FTS5"] = Spread.of(timed(fts, asked, scope))
            if like is not skipped:
                chosen = [x for at, x in enumerate(asked) if at in sample]
                found[name]["LIKE"] = Spread.of(timed(like, chosen, scope))
        return found

    async def _each(
        self, query: list[SearchQuery], *, after_write: bool = False
    ) -> tuple[list[int], list[float]]:
        """The total of each query, and the median of three times."""
        rounds = [
            [await self.ask(one, after_write=after_write) for one in query] for _ in range(ROUNDS)
        ]
        totals = [answer.total for answer, _ in rounds[0]]
        return totals, [median(took for _, took in asked) for asked in zip(*rounds, strict=True)]

    def _scans(self, questions: list[Question]) -> int:
        return min(self.options.scans, len(questions))

    async def size(self) -> tuple[int, int]:
        """Bytes of the index on disk, and of the folded texts."""
        index = await self.engine.read(lambda tx: tx.one(INDEX_BYTES))
        text = await self.engine.read(lambda tx: tx.one(TEXT_BYTES))
        return int(index[0]), int(text[0])


def total_ms(work: Callable[[], tuple[int, Any]], times: int) -> tuple[int, float]:
    """The total of a baseline, and its CPU time."""
    answer, took = cpu_ms(work, times)
    return answer[0], took


def skipped(_question: Question, _scope: int | None) -> tuple[None, float]:
    """A baseline that is skipped."""
    return None, float("nan")


def timed(ask: Timed, asked: list[tuple[Question, int]], scope: int | None) -> list[float]:
    """The time of a baseline for each query; its totals must be equal."""
    times = []
    for question, ours in asked:
        total, took = ask(question, scope)
        compare(question, ours, total)
        times.append(took)
    return times


def compare(question: Question, ours: int, other: int | None) -> None:
    """Fail if two totals differ."""
    if other not in (None, ours):
        sys.exit(f"{question.q!r}: the index finds {ours} messages, another way {other}")


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
            rows.append([scope, name, spread, loops, spread.ratio_to(spreads["index"])])
    print("\n## Random mix: CPU, page of 50 and exact total; the index between writes\n")
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
    print(f"this code: {commit()}; loaded: {facts}")
    print(f"index: {index_bytes / text_bytes:.2f} bytes for each byte of text")
    if bench.baselines is not None and bench.baselines.has_grams:
        grams = bench.baselines.gram_bytes() / text_bytes
        built = bench.baselines.build_s
        print(f"FTS5 trigrams: {grams:.2f} bytes for each byte of text, built in {built:.0f} s")
    await bench.classes()
    await bench.filters()
    await bench.small_scopes()
    show_mix(await bench.mix(), calibration)
    print(f"\nmemory: {memory.peak_mb:.0f} MB at most while searching")
    await surfaces(folder, bench.corpus)
    if options.together:
        questions = mix(bench.corpus, options.messages, SEED)[:200]
        await concurrent_load.measure(loaded, folder, questions, options.messages)
    await loaded.engine.close()


async def surfaces(folder: Path, corpus: Corpus) -> None:
    from bench.search.surfaces import overheads

    print("\n## Surfaces: CPU ms of a page of 50 of the large inbox with rows and excerpts", end="")
    print(" (how many times the store)\n")
    rows: list[list[object]] = [["query", "store", "REST", "MCP over HTTP"]]
    async for question, took in overheads(folder, BIG_INBOX, fixed(corpus)):
        store = took.pop("store")
        through = [f"{ms:.2f} ({ms / store:.1f}x)" for ms in took.values()]
        rows.append([question.kind, f"{store:.2f}", *through])
    table(rows)


def remember(folder: Path, loaded: Loaded, peak_mb: float) -> dict[str, Any]:
    """The cost of loading, stored beside the data."""
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
            "loaded_at": datetime.now(UTC).isoformat(timespec="minutes"),
            "commit": commit(),
        }
        path.write_text(json.dumps(facts))
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def commit() -> str:
    """The commit of this code."""
    command = ("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty")
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


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
