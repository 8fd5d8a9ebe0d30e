"""Searches of memories, and vectors that represent their meaning."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from postroom.mail.text.terms import question_terms
from postroom.model.memory import EmbeddedQuery, MemoryHit, MemoryQuery
from postroom.model.page import Found, Slice
from postroom.store.store import Store
from tests.stores.memories import NOW

WORDS = [
    "ana",
    "bo",
    "tea",
    "coffee",
    "invoice",
    "meeting",
    "budget",
    "oslo",
    "paid",
    "北京",
    "天气",
]


def vector(*parts: float) -> bytes:
    return struct.pack(f"<{len(parts)}f", *parts)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return (
        sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)
    )


async def ask(
    store: Store,
    question: str,
    *,
    meaning: bytes | None = None,
    page: Slice | None = None,
    namespace: str = "default",
) -> Found[MemoryHit]:
    query = MemoryQuery(namespace, NOW, page=page or Slice())
    embedded = EmbeddedQuery(question_terms(question), meaning, "test")
    return await store.search_memories(query, embedded)


async def store_vectors(store: Store, **meanings: bytes) -> None:
    """Store the vector of each memory whose text is a name."""
    found = await store.unembedded(None, limit=10_000)
    await store.store_vectors("test", [(document, meanings[document.text]) for document in found])


def keys(found: Found[MemoryHit]) -> list[str]:
    return [hit.key for hit in found.rows]
