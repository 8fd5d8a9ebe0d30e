"""Retrieval quality: paraphrased questions and keywords over a set of memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.mail.text.terms import STOP_WORDS, terms_of
from postroom.operations.memories import memory_add
from postroom.operations.memory_search import memory_fulltext_search, memory_search
from postroom.pipeline.maintenance import embed_pending

WRITTEN = Path(__file__).parent / "memories.tsv"
"""One memory per line; after a tab, a paraphrased question that it answers."""

NAMESPACE = "bench"
_SHOWN = 10
_KEYWORDS = 3


@dataclass(frozen=True, slots=True)
class Query:
    """A question, and the key of the memory that answers it."""

    question: str
    key: str


@dataclass(frozen=True, slots=True)
class Recall:
    """The share of questions whose answer is first, in the first five, and in the first ten."""

    at_1: float
    at_5: float
    at_10: float

    @classmethod
    def of(cls, places: Sequence[int | None]) -> Recall:
        def share(most: int) -> float:
            return sum(place is not None and place < most for place in places) / len(places)

        return cls(share(1), share(5), share(10))


def read_set() -> tuple[list[str], list[Query]]:
    """The memories, keyed by number, and the paraphrased questions."""
    lines = [line.split("\t") for line in WRITTEN.read_text("utf-8").splitlines()]
    asked = [Query(line[1], str(at)) for at, line in enumerate(lines) if len(line) > 1]
    return [line[0] for line in lines], asked


def keyword_questions(memories: Sequence[str]) -> list[Query]:
    """The rarest words of each memory, as keywords."""
    rarity = Counter(term for text in memories for term in set(terms_of(text)))
    return [Query(" ".join(_rarest(text, rarity)), str(at)) for at, text in enumerate(memories)]


def _rarest(text: str, rarity: Counter[str]) -> list[str]:
    words = [word.strip(".,:;").removesuffix("'s") for word in text.split()]
    telling = [word for word in words if word.lower() not in STOP_WORDS and terms_of(word)]
    return sorted(telling, key=lambda word: (rarity[terms_of(word)[0]], -len(word)))[:_KEYWORDS]


async def remember(ctx: RequestContext, memories: Sequence[str]) -> None:
    """Store and embed the memories, keyed by number."""
    for at, text in enumerate(memories):
        await call(ctx, memory_add, {"key": str(at), "text": text, "namespace": NAMESPACE})
    while await embed_pending(ctx):
        pass


async def by_words(ctx: RequestContext, asked: Sequence[Query]) -> Recall:
    """Search by terms only, without a model."""
    return await hybrid(replace(ctx, embedder=None), asked)


async def hybrid(ctx: RequestContext, asked: Sequence[Query]) -> Recall:
    """Search by terms and vectors."""
    places = []
    for one in asked:
        request = {"query": one.question, "namespace": NAMESPACE, "limit": _SHOWN}
        page = await call(ctx, memory_search, request)
        keys = [hit.key for hit in page.results]
        places.append(keys.index(one.key) if one.key in keys else None)
    return Recall.of(places)


async def by_keywords(ctx: RequestContext, asked: Sequence[Query]) -> Recall:
    """Search by keywords."""
    places = []
    for one in asked:
        words = ",".join(one.question.split())
        request = {"keywords": words, "namespace": NAMESPACE, "limit": _SHOWN}
        page = await call(ctx, memory_fulltext_search, request)
        keys = [hit.key for hit in page.results]
        places.append(keys.index(one.key) if one.key in keys else None)
    return Recall.of(places)
