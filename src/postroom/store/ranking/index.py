"""The way in to the ranking index for searches; `documents` is the way in for changes.

All other modules of this package are private to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from postroom.extras import is_installed
from postroom.model.memory import Vector
from postroom.model.values import dataclass

if TYPE_CHECKING:
    from postroom.store.ranking.collection import CollectionCache
    from postroom.store.ranking.searchers import MailSearcher, MemorySearcher


@dataclass(frozen=True, slots=True)
class Question:
    """The terms of a query, and its vector if there is a model."""

    terms: Sequence[str]
    vector: Vector | None = None
    model: str = ""


class RankingIndex:
    """The searchers of memories and mail, which share a cache.

    The first use imports numpy. Where it is not installed, results are the same, but slower.
    """

    @cached_property
    def _cache(self) -> CollectionCache[Any, Any]:
        from postroom.store.ranking.collection import CollectionCache

        if is_installed("index"):
            from postroom.store.ranking.array_collection import ArrayCollection

            return CollectionCache(ArrayCollection)
        from postroom.store.ranking.plain_collection import PlainCollection

        return CollectionCache(PlainCollection)

    @cached_property
    def memories(self) -> MemorySearcher:
        from postroom.store.ranking.searchers import MemorySearcher

        return MemorySearcher(self._cache)

    @cached_property
    def mail(self) -> MailSearcher:
        from postroom.store.ranking.searchers import MailSearcher

        return MailSearcher(self._cache)
