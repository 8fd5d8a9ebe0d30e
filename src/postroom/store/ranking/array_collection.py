"""A collection as arrays of numpy, with BM25 weights of terms."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from postroom.model.memory import EmbeddedQuery
from postroom.model.page import Slice
from postroom.model.view import EVERYTHING, Everything
from postroom.model.view import Numbers as InboxNumbers
from postroom.store.ranking import scoring
from postroom.store.ranking.collection import (
    K1,
    LONG_DOCUMENT,
    B,
    Ranked,
    RankedCollection,
    RankingState,
    Statistics,
)
from postroom.store.ranking.vectors import Floats, Mask, Vectors, grown
from postroom.store.transaction import Transaction

Numbers = NDArray[np.intp]
Entries = tuple[Numbers, Floats]

_DOC_ID, _FREQUENCY, _NUMBER = np.dtype("<u2"), np.dtype("u1"), np.dtype("<u4")
"""The encodings of doc ids in a segment, of frequencies, and of document numbers."""

_MAX_CACHED = 1_000_000
"""Twelve megabytes of documents and weights."""

_MAX_CACHED_OF_PART = 100_000
"""The same for the mail of some inboxes, of which there can be several."""


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


class VisibleDocuments:
    """The visible documents of a collection (None: all) and their statistics, until it changes."""

    def __init__(self, collection: ArrayCollection, visible: Mask | None) -> None:
        self.collection = collection
        self.visible = visible
        self.statistics = (
            collection.statistics if visible is None else _statistics_of(collection, visible)
        )
        self._norms = _norms(collection.lengths, self.statistics.average_length)
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
            norms = _norms(self.collection.lengths.take(documents), statistics.average_length)
            entries[term] = _bm25(documents, frequencies, norms, statistics.idf(counts[term]))
        return entries


def _statistics_of(collection: ArrayCollection, visible: Mask) -> Statistics:
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


def _norms(lengths: Floats, average: float) -> Floats:
    """The length normalization of BM25; of many documents, each length is computed once."""
    longest = int(lengths.max(initial=0))
    if longest < len(lengths):
        by_length = _norms_of(np.arange(longest + 1, dtype=np.float32), average)
        return by_length.take(lengths.astype(np.intp))
    return _norms_of(lengths, average)


def _norms_of(lengths: Floats, average: float) -> Floats:
    """In double precision, in which a logarithm does not depend on the machine; then rounded."""
    exact = (lengths / np.float32(average)).astype(np.float64)
    cost = np.minimum(exact, 1) + LONG_DOCUMENT * np.log(np.maximum(exact, 1))
    return (K1 * (1 - B + B * cost)).astype(np.float32)


_MAX_VIEWS = 32

_Part = tuple[Numbers, NDArray[np.uint8]]


class ArrayCollection(RankedCollection[Mask, Numbers | np.intp]):
    """A collection as arrays that are indexed by document number."""

    def __init__(self, number: int) -> None:
        self.vectors = Vectors(number)
        super().__init__(number)

    def _reset(self, epoch: int) -> None:
        super()._reset(epoch)
        self._has_tombstones = False
        self.sources: NDArray[np.int64] = np.zeros(0, np.int64)
        self._inboxes: NDArray[np.int64] = np.zeros(0, np.int64)
        self.is_live: Mask = np.zeros(1024, np.bool_)
        self.lengths: Floats = np.zeros(1024, np.float32)
        self._visible_by_inboxes: OrderedDict[InboxNumbers, VisibleDocuments] = OrderedDict()
        self.vectors.reset()

    def _prepare(self, statistics: Statistics) -> None:
        self.is_live = grown(self.is_live, statistics.size)
        self.lengths = grown(self.lengths, statistics.size)
        self.vectors.is_current = False
        self._visible_by_inboxes = OrderedDict()

    def _read_segment(self, documents: bytes, lengths: bytes, deleted: bytes) -> Numbers | np.intp:
        found = np.frombuffer(documents, _NUMBER).astype(np.intp)
        new = found[self.lengths[found] == 0]
        self.lengths[found] = np.maximum(np.frombuffer(lengths, _NUMBER), 1)
        self.is_live[new] = True
        if deleted:
            self._has_tombstones = True
            self.is_live[np.frombuffer(deleted, _NUMBER)] = False
        return _as_range(found)

    def _add(self, document: int, length: int) -> None:
        if self.lengths[document] == 0:
            self.is_live[document] = True
        self.lengths[document] = max(length, 1)

    def _delete(self, documents: Sequence[int]) -> None:
        self._has_tombstones = True
        self.is_live[documents] = False

    def _add_sources(self, sources: Iterable[tuple[int, int, int]]) -> None:
        """Some deleted documents have the source 0."""
        self.sources = grown(self.sources, len(self.is_live))
        self._inboxes = grown(self._inboxes, len(self.is_live))
        for document, source, inbox in sources:
            self.sources[document], self._inboxes[document] = source, inbox

    def only(self, documents: Sequence[int]) -> Mask:
        mask = np.zeros(self.size, np.bool_)
        mask[documents] = True
        return mask

    def all_but(self, documents: Sequence[int]) -> Mask:
        return ~self.only(documents)

    def of_messages(self, numbers: Sequence[int]) -> Mask:
        found: Mask = np.isin(self.sources[: self.size], np.array(numbers, np.int64))
        return found & self.is_live[: self.size]

    def count_complete(self, selected: Mask, query: EmbeddedQuery) -> int:
        documents = np.flatnonzero(selected)
        if query.vector is not None:
            documents = documents[self.vectors.has_vector(documents)]
        return len(documents)

    def not_indexed(self, numbers: Sequence[int]) -> list[int]:
        live = self.sources[: self.size][self.is_live[: self.size]]
        missing = np.isin(np.array(numbers, np.int64), live, invert=True)
        return [numbers[index] for index in np.flatnonzero(missing).tolist()]

    def with_terms(self, tx: Transaction, terms: Sequence[str], among: Mask) -> list[int]:
        entries = self.visible_documents().entries(tx, terms)
        if len(entries) < len(set(terms)):
            return []
        documents = reduce(np.intersect1d, [documents for documents, _ in entries.values()])
        found: list[int] = documents[among[documents]].tolist()
        return found

    def rank(
        self,
        tx: Transaction,
        query: EmbeddedQuery,
        allowed: Mask,
        page: Slice,
        inboxes: InboxNumbers | None = None,
    ) -> Ranked:
        if inboxes is None:
            return scoring.rank(tx, self.visible_documents(), query, allowed, page)
        return scoring.rank(
            tx, self.visible_documents(inboxes), query, allowed, page, ids=self.sources
        )

    def rank_keywords(
        self,
        tx: Transaction,
        keywords: Sequence[tuple[Sequence[str], Mask]],
        *,
        needs_all: bool,
        page: Slice,
    ) -> Ranked:
        return scoring.rank_keywords(
            tx, self.visible_documents(), keywords, needs_all=needs_all, page=page
        )

    def visible_documents(self, inboxes: InboxNumbers = EVERYTHING) -> VisibleDocuments:
        """The documents of some inboxes. Call `read_sources` first."""
        visible_documents = self._visible_by_inboxes.pop(inboxes, None)
        if visible_documents is None:
            visible = None
            if not isinstance(inboxes, Everything):
                is_named = np.isin(self._inboxes[: self.size], inboxes.named)
                visible = self.is_live[: self.size] & is_named
            visible_documents = VisibleDocuments(self, visible)
        self._visible_by_inboxes[inboxes] = visible_documents
        if len(self._visible_by_inboxes) > _MAX_VIEWS:
            self._visible_by_inboxes.popitem(last=False)
        return visible_documents

    def read(self, tx: Transaction, terms: Sequence[str]) -> dict[str, list[_Part]]:
        """The documents and frequencies of each term that occurs."""
        found: dict[str, list[_Part]] = {}
        for term, segment, packed in self._postings(tx, terms):
            count = len(packed) // 3
            doc_ids = np.frombuffer(packed, _DOC_ID, count)
            frequencies = np.frombuffer(packed, _FREQUENCY, count, 2 * count)
            own = self._segments[segment]
            documents = own.take(doc_ids) if isinstance(own, np.ndarray) else doc_ids + own
            found.setdefault(term, []).append((documents, frequencies))
        for term in terms:
            if term in self._buffer:
                newest, counts = self._buffer[term]
                part = np.array(newest, np.intp), np.array(counts, _FREQUENCY)
                found.setdefault(term, []).append(part)
        return found

    def live_entries(self, parts: Sequence[_Part], visible: Mask | None) -> tuple[Numbers, Floats]:
        """The live documents among some, or those that are *visible*, with frequencies."""
        documents = np.concatenate([part[0] for part in parts])
        frequencies = np.concatenate([part[1] for part in parts]).astype(np.float32)
        if visible is None and self._has_tombstones:
            visible = self.is_live
        if visible is not None:
            counts = visible[documents]
            documents, frequencies = documents[counts], frequencies[counts]
        return documents, frequencies


def _as_range(documents: Numbers) -> Numbers | np.intp:
    """Consecutive numbers are represented by the first one."""
    is_run = len(documents) > 0 and bool((np.diff(documents) == 1).all())
    return np.intp(documents[0]) if is_run else documents
