"""A collection as it is read and ranked: statistics, cursors, and what every reader does.

`array_collection` ranks with numpy, `plain_collection` without it and with the same results.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Generic, TypeVar

from postroom.errors import InvalidInput
from postroom.model.memory import CollectionName, EmbeddedQuery
from postroom.model.page import Slice, SortKey
from postroom.model.view import Numbers as InboxNumbers
from postroom.store.ranking.index import find_collection, inboxes_of_messages
from postroom.store.sql.statements import any_of, from_text
from postroom.store.transaction import Row, Transaction

CURSOR_OUTDATED = "cursor: the ranking has changed too much since; start again from the first page"
_KEY_PARTS, _STATE_PARTS = 2, 6
"""The parts of a cursor: the last document, and `RankingState.cursor_part` without counts."""

K1, B = 1.2, 0.75
"""The usual constants of BM25: saturation of frequencies, and normalization by length."""

LONG_DOCUMENT = 0.25
"""Above the average, length counts by its logarithm: a long text with all terms of a query must not
lose to a short one without."""

MAX_FREQUENCY = 255
"""A frequency is stored in one byte."""

STEPS = 10_000
"""Relevance is rounded to four digits, so that equal values are equal in a sort."""

ID_BITS = 48
"""The low bits of a sort key; the others hold the relevance."""

LOWEST_BEST = 1e-6
"""The best score of a list, at least."""

TERMS_ONLY = (-1, 0)
"""The thresholds of a list without vectors; otherwise the largest distance of sketches, and the
lowest score by terms that is compared."""


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
        return max(sum(self.statistics.idf(count) for count in self.counts), LOWEST_BEST)

    @property
    def cursor_part(self) -> SortKey:
        """The part of a cursor that holds this state."""
        return (*astuple(self.statistics), self.last_embedded, *self.thresholds, *self.counts)


def resume(after: SortKey | None, terms: Sequence[str]) -> RankingState | None:
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


def sort_key(after: SortKey) -> int:
    """The sort key of the last row of the page before."""
    return int(after[0]) << ID_BITS | int(after[1])


@dataclass(frozen=True, slots=True)
class Ranked:
    """One page of documents, best first; `ids` are their numbers, or those of messages."""

    ids: tuple[int, ...]
    relevances: tuple[float, ...]
    total: int
    offset: int
    next: SortKey | None

    @classmethod
    def of(cls, shown: Sequence[int], total: int, offset: int, state: RankingState) -> Ranked:
        """A page from its sort keys: the relevance in steps, then the id."""
        found = [divmod(key, 1 << ID_BITS) for key in shown]
        has_more = len(shown) > 0 and offset + len(shown) < total
        following = (*found[-1], *state.cursor_part) if has_more else None
        relevances = tuple(step / STEPS for step, _ in found)
        return cls(tuple(one for _, one in found), relevances, total, offset, following)


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

Selection = TypeVar("Selection")
Segment = TypeVar("Segment")


class RankedCollection(ABC, Generic[Selection, Segment]):
    """A collection in memory: its segments, its buffer, and which documents are live.

    A *selection* is a set of documents, a *segment* the documents of one, as the reader keeps them.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._reset(-1)

    def _reset(self, epoch: int) -> None:
        self._epoch = epoch
        self.statistics = Statistics(size=0, live=0, words=0)
        self._changes = -1
        self._last_tombstone = self._last_buffered = self._last_source = 0
        self._segments: dict[int, Segment] = {}
        self._buffer: dict[str, tuple[list[int], list[int]]] = {}

    @property
    def size(self) -> int:
        """Every document number is below it."""
        return self.statistics.size

    def refreshed(self, tx: Transaction) -> RankedCollection[Selection, Segment]:
        """This collection with what has changed since the last call.

        If a newer transaction has read changes that this one cannot see: another reader.
        """
        row = tx.one(STATE, collection=self.number)
        epoch, changes, *numbers = row or (0, 0, 1, 0, 0)
        if changes < self._changes:
            return type(self)(self.number).refreshed(tx)
        if epoch != self._epoch:
            self._reset(epoch)
        if changes == self._changes:
            return self
        self._prepare(statistics := Statistics(*numbers))
        self._read_segments(tx)
        self._read_buffer(tx)
        self._read_tombstones(tx)
        self.statistics, self._changes = statistics, changes
        return self

    def _read_segments(self, tx: Transaction) -> None:
        numbers = {row[0] for row in tx.all(SEGMENT_NUMBERS, collection=self.number)}
        if numbers == set(self._segments):
            return
        # Documents of new segments have left the buffer.
        self._segments, self._buffer, self._last_buffered = {}, {}, 0
        for name, documents, lengths, deleted in tx.all(SEGMENTS, collection=self.number):
            self._segments[name] = self._read_segment(documents, lengths, deleted or b"")

    def _read_buffer(self, tx: Transaction) -> None:
        rows = tx.all(BUFFER, collection=self.number, after=self._last_buffered)
        for document, length, terms in rows:
            self._last_buffered = document
            self._add(document, length)
            for term, frequency in from_text(terms).items():
                documents, frequencies = self._buffer.setdefault(term, ([], []))
                documents.append(document)
                frequencies.append(min(frequency, MAX_FREQUENCY))

    def _read_tombstones(self, tx: Transaction) -> None:
        rows = tx.all(TOMBSTONES, collection=self.number, after=self._last_tombstone)
        if rows:
            self._delete([row[1] for row in rows])
            self._last_tombstone = max(row[0] for row in rows)

    def read_sources(self, tx: Transaction) -> None:
        """Read the message number of each document. Needed for all that is about messages."""
        rows = tx.all(SOURCES, collection=self.number, after=self._last_source, size=self.size)
        inboxes = inboxes_of_messages(tx, [row[1] for row in rows])
        self._add_sources((document, item, inboxes.get(item, 0)) for document, item in rows)
        if rows:
            self._last_source = rows[-1][0]

    def _postings(self, tx: Transaction, terms: Sequence[str]) -> list[Row]:
        if not self._segments or not terms:
            return []
        segments, among = any_of("segment", list(self._segments))
        among_terms, params = any_of("term", terms)
        sql = POSTINGS.format(segments=segments, terms=among_terms)
        return tx.all(sql, collection=self.number, **among, **params)

    @abstractmethod
    def _prepare(self, statistics: Statistics) -> None:
        """Prepare for reading changes, after which the collection has these statistics."""

    @abstractmethod
    def _read_segment(self, documents: bytes, lengths: bytes, deleted: bytes) -> Segment:
        """Read a segment. Documents that were known before stay live or deleted."""

    @abstractmethod
    def _add(self, document: int, length: int) -> None:
        """Add a document of the buffer; one that was known before stays live or deleted."""

    @abstractmethod
    def _delete(self, documents: Sequence[int]) -> None: ...

    @abstractmethod
    def _add_sources(self, sources: Iterable[tuple[int, int, int]]) -> None:
        """Add documents with their messages and inboxes."""

    @abstractmethod
    def only(self, documents: Sequence[int]) -> Selection:
        """Select these documents."""

    @abstractmethod
    def all_but(self, documents: Sequence[int]) -> Selection:
        """Select all documents but these."""

    @abstractmethod
    def of_messages(self, numbers: Sequence[int]) -> Selection:
        """Select the live documents of some messages."""

    @abstractmethod
    def count_complete(self, selected: Selection, query: EmbeddedQuery) -> int:
        """How many of the selected documents have all that the query compares."""

    @abstractmethod
    def not_indexed(self, numbers: Sequence[int]) -> list[int]:
        """Those of some messages that have no live document."""

    @abstractmethod
    def with_terms(self, tx: Transaction, terms: Sequence[str], among: Selection) -> list[int]:
        """The selected documents that have every one of some terms."""

    @abstractmethod
    def rank(
        self,
        tx: Transaction,
        query: EmbeddedQuery,
        allowed: Selection,
        page: Slice,
        inboxes: InboxNumbers | None = None,
    ) -> Ranked:
        """Find the documents that match the terms or the vector of a question.

        *allowed* restricts the documents. With *inboxes*, statistics are those of their messages,
        and the numbers of messages are returned and break ties; without, those of documents.

        Raises:
            InvalidInput: the cursor cannot be continued.
        """

    @abstractmethod
    def rank_keywords(
        self,
        tx: Transaction,
        keywords: Sequence[tuple[Sequence[str], Selection]],
        *,
        needs_all: bool,
        page: Slice,
    ) -> Ranked:
        """Find documents with all or any of some keywords.

        A keyword has terms, all of which are needed, and the documents in which it counts.

        Raises:
            InvalidInput: the cursor cannot be continued.
        """


_MAX_COLLECTIONS = 64
_NO_COLLECTION = 0


class CollectionCache(Generic[Selection, Segment]):
    """Caches the collections that were used last."""

    def __init__(self, reader: Callable[[int], RankedCollection[Selection, Segment]]) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._collections: OrderedDict[
            int, tuple[RankedCollection[Selection, Segment], threading.Lock]
        ] = OrderedDict()

    @contextmanager
    def collection(
        self, tx: Transaction, name: CollectionName
    ) -> Iterator[RankedCollection[Selection, Segment]]:
        """A collection as the transaction sees it; empty if it does not exist."""
        number = find_collection(tx, name) or _NO_COLLECTION
        with self._lock:
            found = self._collections.pop(number, None)
            found = found or (self._reader(number), threading.Lock())
            self._collections[number] = found
            if len(self._collections) > _MAX_COLLECTIONS:
                self._collections.popitem(last=False)
        collection, lock = found
        with lock:
            yield collection.refreshed(tx)
