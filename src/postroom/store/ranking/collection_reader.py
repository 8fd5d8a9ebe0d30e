"""Reading a collection: arrays in memory, refreshed with what has changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from postroom.model.view import EVERYTHING, Everything
from postroom.model.view import Numbers as InboxNumbers
from postroom.store.ranking.compaction import DOC_ID, FREQUENCY, NUMBER
from postroom.store.ranking.documents import inboxes_of_messages
from postroom.store.ranking.statistics import Floats, Mask, Numbers, Statistics, View
from postroom.store.ranking.vectors import Vectors
from postroom.store.sql.values import any_of, from_text
from postroom.store.transaction import Row, Transaction

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

    def is_ahead_of(self, tx: Transaction) -> bool:
        """Whether this has read changes that the transaction cannot see."""
        row = tx.one(STATE, collection=self.number)
        return row is not None and row[1] < self._changes

    def refresh(self, tx: Transaction) -> None:
        """Read what has changed since the last call."""
        row = tx.one(STATE, collection=self.number)
        epoch, changes, *numbers = row or (0, 0, 1, 0, 0)
        statistics = Statistics(*numbers)
        if epoch != self._epoch:
            self._reset(epoch)
        if changes == self._changes:
            return
        self._grow(statistics.size)
        self._read_segments(tx)
        self._read_buffer(tx)
        self._read_tombstones(tx)
        self.vectors.is_current = False
        self._views = OrderedDict()
        self.statistics, self._changes = statistics, changes

    def _grow(self, size: int) -> None:
        if size <= len(self.is_live):
            return
        more = max(size, 2 * len(self.is_live)) - len(self.is_live)
        self.is_live = np.concatenate([self.is_live, np.zeros(more, np.bool_)])
        self.lengths = np.concatenate([self.lengths, np.zeros(more, np.float32)])

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
        for document, length, terms in tx.all(
            BUFFER, collection=self.number, after=self._last_buffered
        ):
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
        if len(self.sources) < len(self.is_live):
            more = np.zeros(len(self.is_live) - len(self.sources), np.int64)
            self.sources = np.concatenate([self.sources, more])
            self._inboxes = np.concatenate([self._inboxes, more])
        rows = tx.all(SOURCES, collection=self.number, after=self._last_source, size=self.size)
        inboxes = inboxes_of_messages(tx, [row[1] for row in rows])
        for document, source in rows:
            self.sources[document], self._inboxes[document] = source, inboxes.get(source, 0)
            self._last_source = document

    def view(self, inboxes: InboxNumbers = EVERYTHING) -> View:
        """The documents of some inboxes. Call `read_sources` first."""
        view = self._views.pop(inboxes, None) or View(self, self._in(inboxes))
        self._views[inboxes] = view
        if len(self._views) > _MAX_VIEWS:
            self._views.popitem(last=False)
        return view

    def _in(self, inboxes: InboxNumbers) -> Mask | None:
        if isinstance(inboxes, Everything):
            return None
        visible: Mask = self.is_live[: self.size] & np.isin(
            self._inboxes[: self.size], inboxes.named
        )
        return visible

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
        among_terms = (
            visible if visible is not None else self.is_live if self._has_tombstones else None
        )
        if among_terms is not None:
            counts = among_terms[documents]
            documents, frequencies = documents[counts], frequencies[counts]
        return documents, frequencies


def _as_range(documents: Numbers) -> Numbers | np.intp:
    """Consecutive numbers are represented by the first one."""
    is_run = len(documents) > 0 and bool((np.diff(documents) == 1).all())
    return np.intp(documents[0]) if is_run else documents


_MAX_COLLECTIONS = 64


class CollectionCache:
    """Caches the collections that were used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._collections: OrderedDict[int, tuple[CollectionReader, threading.Lock]] = OrderedDict()

    @contextmanager
    def collection(self, tx: Transaction, number: int) -> Iterator[CollectionReader]:
        """A collection as the transaction sees it."""
        with self._lock:
            found = self._collections.pop(number, None) or (
                CollectionReader(number),
                threading.Lock(),
            )
            self._collections[number] = found
            if len(self._collections) > _MAX_COLLECTIONS:
                self._collections.popitem(last=False)
        collection, lock = found
        with lock:
            # A newer transaction has refreshed it already: read a copy of our own.
            collection = CollectionReader(number) if collection.is_ahead_of(tx) else collection
            collection.refresh(tx)
            yield collection
