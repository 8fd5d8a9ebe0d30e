"""Speed of memory search, compared with a ranked FTS5 query with a count."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, product
from pathlib import Path
from statistics import median
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from bench.memory.retrieval import read_set
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.mail.text.terms import STOP_WORDS
from postroom.model.memory import Author, Memory, Unembedded
from postroom.model.view import EVERYTHING
from postroom.operations.memory_search import memory_search

NAMESPACE = "many"
MEMORY_WORDS, QUESTION_WORDS = 40, 8
_AT_ONCE = 500
_ORIGINALS = 400
_SEED = 9
_STAYS = 0.2
_NOISE = 0.03
"""The deviation of each of the 384 dimensions from the vector of the original text."""

OR_QUERY = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT 10"
COUNT = "SELECT count(*) FROM words WHERE words MATCH ?"


class GeneratedTexts:
    """Deterministic texts of forty words and questions of eight.

    They have the structure of the hand-written ones, but most significant words are replaced, with
    a realistic distribution: few often, most rarely.
    """

    def __init__(self, count: int) -> None:
        self._random = random.Random(_SEED)
        memories, asked = read_set()
        known = sorted({word for text in memories for word in _words(text) if not _is_small(word)})
        self._telling = [*known, *(a + b for a, b in product(known, known[:40]) if a != b)]
        self._often = list(accumulate(1 / (place + 5) for place in range(len(self._telling))))
        self.texts = [self._text(memories, MEMORY_WORDS) for _ in range(count)]
        # Questions have real words only: an invented one is several tokens for the model.
        self._telling, self._often = known, self._often[: len(known)]
        questions = [one.question for one in asked]
        self.questions = [self._text(questions, QUESTION_WORDS) for _ in range(40)]
        self.written = [self._joined(memories, MEMORY_WORDS) for _ in range(64)]

    def _text(self, like: Sequence[str], length: int) -> str:
        words = _words(self._joined(like, length))
        return " ".join(word if self._stays(word) else self._other() for word in words)

    def _joined(self, sentences: Sequence[str], length: int) -> str:
        words: list[str] = []
        while len(words) < length:
            words += self._random.choice(sentences).split()
        return " ".join(words[:length])

    def _stays(self, word: str) -> bool:
        return _is_small(word) or self._random.random() < _STAYS

    def _other(self) -> str:
        [word] = self._random.choices(self._telling, cum_weights=self._often)
        return word


def _words(text: str) -> list[str]:
    return [word.strip(".,:;?'").lower() for word in text.split()]


def _is_small(word: str) -> bool:
    return word in STOP_WORDS


async def fill(ctx: RequestContext, many: GeneratedTexts) -> float:
    """Store the texts as memories; return CPU seconds."""
    started = time.process_time()
    author, now = Author(visible=EVERYTHING, namespaces=EVERYTHING, is_owner=True), ctx.clock()
    for start in range(0, len(many.texts), _AT_ONCE):
        batch = many.texts[start : start + _AT_ONCE]
        given = [_memory(start + at, text, now) for at, text in enumerate(batch)]
        await ctx.store.import_memories(given, author, now=now)
    return time.process_time() - started


def _memory(number: int, text: str, now: Any) -> Memory:
    return Memory(
        namespace=NAMESPACE,
        key=f"memory {number}",
        summary="",
        text=text,
        tags=(),
        links=(),
        trust="user",
        version=1,
        expires_at=None,
        created_at=now,
        updated_at=now,
    )


async def store_vectors(ctx: RequestContext, many: GeneratedTexts) -> None:
    """Give each text a vector: a few from the model, the others near those, to save hours."""
    assert ctx.embedder is not None
    originals = np.stack(
        [
            np.frombuffer(vector, "<f4")
            for vector in await ctx.embedder.embed(many.texts[:_ORIGINALS])
        ]
    )
    chance = np.random.default_rng(_SEED)
    while found := await ctx.store.unembedded(("memories", NAMESPACE), limit=_AT_ONCE):
        await ctx.store.store_vectors(
            ctx.embedder.model,
            [(document, vector.tobytes()) for document, vector in _near(found, originals, chance)],
        )


def _near(
    found: Sequence[Unembedded], originals: NDArray[np.float32], chance: np.random.Generator
) -> list[tuple[Unembedded, NDArray[np.float32]]]:
    chosen = originals[chance.integers(len(originals), size=len(found))]
    moved = (chosen + chance.normal(0, _NOISE, chosen.shape)).astype("<f4")
    return list(zip(found, moved, strict=True))


async def ask(ctx: RequestContext, many: GeneratedTexts) -> tuple[float, float, float]:
    """CPU ms of a query: in total, in the store alone, and for the first one."""
    first = await _cpu_ms(lambda: _question(ctx, many.questions[0]))
    whole = [await _cpu_ms(lambda q=q: _question(ctx, q)) for q in many.questions[1:]]
    # The vectors of these queries are cached by now: the rest is the store's.
    again = [await _cpu_ms(lambda q=q: _question(ctx, q)) for q in many.questions[1:]]
    return median(whole), median(again), first


async def _question(ctx: RequestContext, question: str) -> object:
    return await call(ctx, memory_search, {"query": question, "namespace": NAMESPACE, "limit": 10})


async def _cpu_ms(work: Callable[[], Awaitable[object]]) -> float:
    started = time.process_time()
    await work()
    return (time.process_time() - started) * 1_000


def ask_fts(folder: Path, many: GeneratedTexts) -> float:
    """CPU ms of the same queries on FTS5: any of the words, ranked, and counted."""
    with apsw.Connection(str(folder / "fts.db")) as database:
        database.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter unicode61')")
        database.executemany("INSERT INTO words VALUES (?)", [(text,) for text in many.texts])
    database.execute("INSERT INTO words (words) VALUES ('optimize')")
    took = []
    for question in many.questions[1:]:
        asked = " OR ".join(f'"{word}"' for word in question.split())
        started = time.process_time()
        database.execute(OR_QUERY, (asked,)).fetchall()
        database.execute(COUNT, (asked,)).fetchall()
        took.append((time.process_time() - started) * 1_000)
    database.close()
    return median(took)


async def embed(ctx: RequestContext, many: GeneratedTexts) -> tuple[float, float]:
    """CPU ms to embed a memory of forty words: singly, and in batches of sixteen."""
    assert ctx.embedder is not None
    texts = many.written
    await ctx.embedder.embed(["to load the model"])
    single = [await _cpu_ms(lambda t=t: ctx.embedder.embed([t])) for t in texts[:32]]
    batch = await _cpu_ms(lambda: ctx.embedder.embed(texts[32:48]))
    return median(single), batch / 16
