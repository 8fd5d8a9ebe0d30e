"""Statistics and BM25 weights of terms, over the documents that a caller can see."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from postroom.errors import InvalidInput
from postroom.model.page import Place
from postroom.store.transaction import Transaction

CURSOR_OUTDATED = (
    "cursor: what it was made from has changed too much since; start again without it, from the"
    " first page"
)
_KEY_PARTS, _STATISTICS_PARTS, _THRESHOLDS = 2, 3, 2


@dataclass(frozen=True, slots=True)
class Statistics:
    """The size of a collection, or of a part of it, at one time; later documents are from `size`
    on."""

    size: int
    live: int
    words: int

    @property
    def average_length(self) -> float:
        """The average number of terms of a document."""
        return max(self.words / self.live if self.live else 1.0, 1.0)

    def idf(self, count: int) -> float:
        """The inverse document frequency of a term that *count* documents have."""
        return math.log1p((self.live - count + 0.5) / (count + 0.5))


@dataclass(frozen=True, slots=True)
class RankingState:
    """What the first page of a list was computed from; carried by its cursor.

    With it, the relevance of a document depends on that document alone, so later pages are
    consistent whatever was added, deleted or embedded since. `counts` are the documents of each
    term, `thresholds` two numbers of the ranking, and `last_embedded` the last vector that counts.
    """

    statistics: Statistics
    counts: tuple[int, ...]
    thresholds: tuple[int, int]
    last_embedded: int = -1

    @property
    def max_score(self) -> float:
        """The score of a document of average length that has every term."""
        return max(sum(self.statistics.idf(count) for count in self.counts), 1e-6)

    @property
    def place(self) -> Place:
        """The part of a cursor that holds this state."""
        return (*astuple(self.statistics), self.last_embedded, *self.thresholds, *self.counts)


def resume(after: Place | None, terms: Sequence[str]) -> RankingState | None:
    """The state that a cursor carries.

    Raises:
        InvalidInput: another version made the cursor.
    """
    if after is None:
        return None
    numbers = [int(number) for number in after[_KEY_PARTS:]]
    statistics, rest = numbers[:_STATISTICS_PARTS], numbers[_STATISTICS_PARTS:]
    last_embedded, thresholds, counts = rest[:1], rest[1 : 1 + _THRESHOLDS], rest[1 + _THRESHOLDS :]
    if len(thresholds) != _THRESHOLDS or len(counts) != len(terms):
        raise InvalidInput(CURSOR_OUTDATED)
    return RankingState(
        Statistics(*statistics), tuple(counts), (thresholds[0], thresholds[1]), last_embedded[0]
    )


if TYPE_CHECKING:
    from postroom.store.ranking.collection_reader import CollectionReader

Numbers = NDArray[np.intp]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Entries = tuple[Numbers, Floats]

_MAX_CACHED = 1_000_000
"""Twelve megabytes of documents and weights."""

_MAX_CACHED_OF_PART = 100_000
"""The same for a view of some inboxes, of which there can be several."""

K1, B = 1.2, 0.75
"""The usual constants of BM25: saturation of frequencies, and normalization by length."""

LONG_DOCUMENT = 0.25
"""Above the average, length counts by its logarithm: a long text with all terms of a query must not
lose to a short one without."""


class TermCache:
    """The weights of the terms that were used last."""

    def __init__(self, limit: int) -> None:
        self._entries: OrderedDict[str, Entries] = OrderedDict()
        self._limit = limit
        self._size = 0

    def get(self, term: str) -> Entries | None:
        if term in self._entries:
            self._entries.move_to_end(term)
        return self._entries.get(term)

    def put(self, term: str, entries: Entries) -> None:
        self._entries[term] = entries
        self._size += len(entries[0])
        while self._size > self._limit:
            _, (documents, _) = self._entries.popitem(last=False)
            self._size -= len(documents)


class View:
    """The visible documents of a collection (None: all) and their statistics, until it changes."""

    def __init__(self, collection: CollectionReader, visible: Mask | None) -> None:
        self.collection = collection
        self.visible = visible
        self.statistics = (
            collection.statistics if visible is None else _statistics_of(collection, visible)
        )
        self._norms = _norms(collection.lengths / np.float32(self.statistics.average_length))
        self._cache = TermCache(_MAX_CACHED if visible is None else _MAX_CACHED_OF_PART)

    @property
    def size(self) -> int:
        return self.collection.statistics.size

    def entries(
        self, tx: Transaction, terms: Sequence[str], resumed: RankingState | None = None
    ) -> dict[str, Entries]:
        """The live documents of each term, and its weight in each.

        For a *resumed* list, only documents that existed then, with the weights of then.
        """
        if resumed is not None and resumed.statistics != self.statistics:
            return self._resumed_entries(tx, terms, resumed)
        known = {term: self._cache.get(term) for term in terms}
        for term, parts in self.collection.read(tx, [t for t in terms if known[t] is None]).items():
            documents, frequencies = self.collection.live_entries(parts, self.visible)
            idf = self.statistics.idf(len(documents))
            entries = _bm25(documents, frequencies, self._norms.take(documents), idf)
            known[term] = entries
            self._cache.put(term, entries)
        return {term: entries for term, entries in known.items() if entries is not None}

    def _resumed_entries(
        self, tx: Transaction, terms: Sequence[str], resumed: RankingState
    ) -> dict[str, Entries]:
        statistics, counts = resumed.statistics, dict(zip(terms, resumed.counts, strict=True))
        found = self.collection.read(tx, terms)
        entries = {}
        # In the order of the query, because a sum of floats depends on it.
        for term in (term for term in terms if term in found):
            documents, frequencies = self.collection.live_entries(found[term], self.visible)
            existed = documents < statistics.size
            documents, frequencies = documents[existed], frequencies[existed]
            lengths = self.collection.lengths.take(documents)
            norms = _norms(lengths / np.float32(statistics.average_length))
            entries[term] = _bm25(documents, frequencies, norms, statistics.idf(counts[term]))
        return entries


def _statistics_of(collection: CollectionReader, visible: Mask) -> Statistics:
    documents = np.flatnonzero(visible)
    return Statistics(
        size=int(documents[-1]) + 1 if len(documents) else 0,
        live=len(documents),
        words=int(collection.lengths[documents].sum(dtype=np.float64)),
    )


def _bm25(documents: Numbers, frequencies: Floats, norms: Floats, idf: float) -> Entries:
    norms += frequencies
    frequencies *= np.float32(idf * (K1 + 1))
    frequencies /= norms
    return documents, frequencies


def _norms(lengths: Floats) -> Floats:
    """The length normalization of BM25; an average document has length 1."""
    cost = np.minimum(lengths, 1) + LONG_DOCUMENT * np.log(np.maximum(lengths, 1))
    return (K1 * (1 - B + B * cost)).astype(np.float32)
