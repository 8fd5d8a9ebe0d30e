"""Reading a collection: arrays in memory, statistics, and BM25 weights of terms."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from postroom.errors import InvalidInput
from postroom.model.memory import CollectionName
from postroom.model.page import Place
from postroom.model.view import EVERYTHING, Everything
from postroom.model.view import Numbers as InboxNumbers
from postroom.store.ranking.compaction import DOC_ID, FREQUENCY, NUMBER
from postroom.store.ranking.documents import find_collection, inboxes_of_messages
from postroom.store.ranking.vectors import Vectors, grown
from postroom.store.sql.values import any_of, from_text
from postroom.store.transaction import Row, Transaction

CURSOR_OUTDATED = (
    "cursor: what it was made from has changed too much since; start again without it, from the"
    " first page"
)
_KEY_PARTS, _STATE_PARTS = 2, 6
"""The parts of a cursor: the last document, and `RankingState.place` without counts."""


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
    if len(numbers) != _STATE_PARTS + len(terms):
        raise InvalidInput(CURSOR_OUTDATED)
    size, live, words, last_embedded, first, second, *counts = numbers
    return RankingState(
        Statistics(size, live, words), tuple(counts), (first, second), last_embedded
    )


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


_MAX_VIEWS = 32

_Part = tuple[Numbers, NDArray[np.uint8]]

_MAX_FREQUENCY = 255
"""A frequency is stored in one byte."""

STATE = """
    SELECT epoch, changes, next_document, documents, total_length FROM ranking_collections
     WHERE number = :collection
"""
SEGMENTS = """
    SELECT segment, documents, lengths, deleted FROM ranking_segments WHERE collection = :collection
"""
SEGMENT_NUMBERS = "SELECT segment FROM ranking_segments WHERE collection = :collection"
BUFFER = """
    SELECT document, length, terms FROM ranking_documents
     WHERE collection = :collection AND terms IS NOT NULL AND document > :after ORDER BY document
"""
TOMBSTONES = """
    SELECT number, document FROM ranking_deletions
     WHERE collection = :collection AND number > :after
"""
SOURCES = """
    SELECT document, item FROM ranking_documents
     WHERE collection = :collection AND document > :after AND document < :size
     ORDER BY document
"""
POSTINGS = """
    SELECT term, segment, entries FROM ranking_postings
     WHERE collection = :collection AND segment {segments} AND term {terms}
"""


class CollectionReader:
    """A collection as arrays that are indexed by document number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.vectors = Vectors(number)
        self._reset(-1)

    def _reset(self, epoch: int) -> None:
        self._epoch = epoch
        self.statistics = Statistics(size=0, live=0, words=0)
        self._changes = -1
        self._last_tombstone = self._last_buffered = 0
        self._has_tombstones = False
        self.sources: NDArray[np.int64] = np.zeros(0, np.int64)
        self._inboxes: NDArray[np.int64] = np.zeros(0, np.int64)
        self._last_source = 0
        self.is_live: Mask = np.zeros(1024, np.bool_)
        self.lengths: Floats = np.zeros(1024, np.float32)
        self._segments: dict[int, Numbers | np.intp] = {}
        self._buffer: dict[str, tuple[list[int], list[int]]] = {}
        self._views: OrderedDict[InboxNumbers, View] = OrderedDict()
        self.vectors.reset()

    @property
    def size(self) -> int:
        """The length of an array with an element for each document number."""
        return self.statistics.size

    def refreshed(self, tx: Transaction) -> CollectionReader:
        """This collection with what has changed since the last call.

        If a newer transaction has read changes that this one cannot see: another reader.
        """
        row = tx.one(STATE, collection=self.number)
        epoch, changes, *numbers = row or (0, 0, 1, 0, 0)
        if changes < self._changes:
            return CollectionReader(self.number).refreshed(tx)
        statistics = Statistics(*numbers)
        if epoch != self._epoch:
            self._reset(epoch)
        if changes == self._changes:
            return self
        self.is_live = grown(self.is_live, statistics.size)
        self.lengths = grown(self.lengths, statistics.size)
        self._read_segments(tx)
        self._read_buffer(tx)
        self._read_tombstones(tx)
        self.vectors.is_current = False
        self._views = OrderedDict()
        self.statistics, self._changes = statistics, changes
        return self

    def _read_segments(self, tx: Transaction) -> None:
        numbers = {row[0] for row in tx.all(SEGMENT_NUMBERS, collection=self.number)}
        if numbers == set(self._segments):
            return
        # Documents of new segments have left the buffer.
        self._segments, self._buffer, self._last_buffered = {}, {}, 0
        for name, documents, lengths, deleted in tx.all(SEGMENTS, collection=self.number):
            found = np.frombuffer(documents, NUMBER).astype(np.intp)
            self._segments[name] = _as_range(found)
            new = found[self.lengths[found] == 0]
            self.lengths[found] = np.maximum(np.frombuffer(lengths, NUMBER), 1)
            self.is_live[new] = True
            if deleted:
                self._has_tombstones = True
                self.is_live[np.frombuffer(deleted, NUMBER)] = False

    def _read_buffer(self, tx: Transaction) -> None:
        rows = tx.all(BUFFER, collection=self.number, after=self._last_buffered)
        for document, length, terms in rows:
            self._last_buffered = document
            if self.lengths[document] == 0:
                self.is_live[document] = True
            self.lengths[document] = max(length, 1)
            for term, frequencies in from_text(terms).items():
                documents, counts = self._buffer.setdefault(term, ([], []))
                documents.append(document)
                counts.append(min(frequencies, _MAX_FREQUENCY))

    def _read_tombstones(self, tx: Transaction) -> None:
        rows = tx.all(TOMBSTONES, collection=self.number, after=self._last_tombstone)
        if rows:
            self._has_tombstones = True
            self.is_live[[row[1] for row in rows]] = False
            self._last_tombstone = max(row[0] for row in rows)

    def read_sources(self, tx: Transaction) -> None:
        """Read the message number of each document; 0 for some deleted ones."""
        self.sources = grown(self.sources, len(self.is_live))
        self._inboxes = grown(self._inboxes, len(self.is_live))
        rows = tx.all(SOURCES, collection=self.number, after=self._last_source, size=self.size)
        inboxes = inboxes_of_messages(tx, [row[1] for row in rows])
        for document, source in rows:
            self.sources[document], self._inboxes[document] = source, inboxes.get(source, 0)
            self._last_source = document

    def view(self, inboxes: InboxNumbers = EVERYTHING) -> View:
        """The documents of some inboxes. Call `read_sources` first."""
        view = self._views.pop(inboxes, None)
        if view is None:
            visible = None
            if not isinstance(inboxes, Everything):
                is_named = np.isin(self._inboxes[: self.size], inboxes.named)
                visible = self.is_live[: self.size] & is_named
            view = View(self, visible)
        self._views[inboxes] = view
        if len(self._views) > _MAX_VIEWS:
            self._views.popitem(last=False)
        return view

    def read(self, tx: Transaction, terms: Sequence[str]) -> dict[str, list[_Part]]:
        """The documents and frequencies of each term that occurs."""
        found: dict[str, list[_Part]] = {}
        for term, segment, packed in self._postings(tx, terms):
            count = len(packed) // 3
            doc_ids = np.frombuffer(packed, DOC_ID, count)
            frequencies = np.frombuffer(packed, FREQUENCY, count, 2 * count)
            own = self._segments[segment]
            documents = own.take(doc_ids) if isinstance(own, np.ndarray) else doc_ids + own
            found.setdefault(term, []).append((documents, frequencies))
        for term in terms:
            if term in self._buffer:
                newest, counts = self._buffer[term]
                part = np.array(newest, np.intp), np.array(counts, FREQUENCY)
                found.setdefault(term, []).append(part)
        return found

    def _postings(self, tx: Transaction, terms: Sequence[str]) -> list[Row]:
        if not self._segments or not terms:
            return []
        segments, among = any_of("segment", list(self._segments))
        among_terms, params = any_of("term", terms)
        sql = POSTINGS.format(segments=segments, terms=among_terms)
        return tx.all(sql, collection=self.number, **among, **params)

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


_MAX_COLLECTIONS = 64
_NO_COLLECTION = 0


class CollectionCache:
    """Caches the collections that were used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._collections: OrderedDict[int, tuple[CollectionReader, threading.Lock]] = OrderedDict()

    @contextmanager
    def collection(self, tx: Transaction, name: CollectionName) -> Iterator[CollectionReader]:
        """A collection as the transaction sees it; empty if it does not exist."""
        number = find_collection(tx, name) or _NO_COLLECTION
        with self._lock:
            found = self._collections.pop(number, None)
            found = found or (CollectionReader(number), threading.Lock())
            self._collections[number] = found
            if len(self._collections) > _MAX_COLLECTIONS:
                self._collections.popitem(last=False)
        collection, lock = found
        with lock:
            yield collection.refreshed(tx)
