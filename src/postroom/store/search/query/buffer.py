"""Searching the buffer with Bloom filters, so that most of its texts are not read.

A filter has a bit for each sequence of four bytes in a text, shared by several of them. A text that
lacks a bit of the query does not contain the query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from postroom.model.view import Numbers
from postroom.store.search.query.scan import Match, SearchQuery, has_buffered, scan_buffer
from postroom.store.search.segments.message_sets import NO_STAMP
from postroom.store.search.segments.segment import SEARCHABLE, SUBJECT
from postroom.store.search.tokens.arrays import U8, U32, Int
from postroom.store.search.tokens.boundaries import utf8
from postroom.store.sql.statements import any_of, padded, within
from postroom.store.transaction import Transaction

BUFFERED = """
    SELECT message, stamp FROM search_buffer WHERE {within} ORDER BY message LIMIT :limit
"""
SHORT_TEXTS = """
    SELECT message, searchable FROM search_texts
     WHERE {within} AND message {among} AND octet_length(searchable) <= :max_bytes
"""

_GRAM_BYTES, _BITS = 4, 13
_FACTOR, _UNUSED = np.uint32(2_654_435_761), np.uint32(32 - _BITS)
_BYTES = (1 << _BITS) // 8
_MAX_TEXT_BYTES = 1 << 13
"""A longer text would set most bits."""

_MAX_FILTERS = 1 << 13
_MAX_BUFFERED = 1 << 12
"""More than an import beside running merges leaves in the buffer."""
_NEW_SHARE, _MAX_NEW = 8, 8
"""A query adds filters for one in `_NEW_SHARE` texts without one, up to this many: that costs about
as much as scanning the rest, which the query must do as well."""
_MAX_QUERY_BITS = 12
"""More bits would hardly exclude another text."""
_MAX_CANDIDATES = 200
_MATCHES_ALL = 0


class BloomFilters:
    """The filters of several texts side by side: a row holds one byte of each.

    Existing columns never change. Column 0 has every bit set; it stands for texts that are too long
    or were not read yet.
    """

    def __init__(self) -> None:
        self.rows: U8 = np.zeros((_BYTES, _MAX_FILTERS), np.uint8)
        self.rows[:, _MATCHES_ALL] = 0xFF
        self.columns: dict[int, int] = {NO_STAMP: _MATCHES_ALL}
        self.used = _MATCHES_ALL + 1

    def has_room(self, count: int) -> bool:
        return self.used + count <= _MAX_FILTERS

    def add(self, stamps: Sequence[int], filters: U8) -> None:
        first = self.used
        self.used += len(stamps)
        self.rows[:, first : self.used] = filters.T
        self.columns.update(zip(stamps, range(first, self.used), strict=True))


@dataclass(frozen=True, slots=True)
class BufferedMessages:
    """The messages of the buffer, and the columns of their filters."""

    numbers: Sequence[int]
    columns: Int
    filters: BloomFilters
    is_complete: bool

    def candidates(self, texts: Sequence[bytes]) -> list[int] | None:
        """The messages that may contain all texts; None if too many to name."""
        if not self.numbers:
            return []
        every = [_bits_of(text) for text in texts] or [_bits_of(b"")]
        bits = np.unique(np.concatenate(every))[:_MAX_QUERY_BITS]
        masks = np.uint8(1) << (bits & 7).astype(np.uint8)
        rows: U8 = self.filters.rows[bits >> 3, : self.filters.used]
        may_have = np.bitwise_and(rows, masks[:, None]).all(axis=0)
        found = np.flatnonzero(may_have.take(self.columns)).tolist()
        if len(found) > min(len(self.numbers) // 4, _MAX_CANDIDATES):
            return None
        return [self.numbers[at] for at in found]


class Buffer:
    """Caches the filters of buffered messages. Thread-safe."""

    def __init__(self) -> None:
        self._filters = BloomFilters()
        self._lock = Lock()

    def matches(self, tx: Transaction, query: SearchQuery) -> list[Match]:
        """The matches in the buffer, newest first."""
        texts = [utf8(text) for stream, text in query.texts() if stream in (SEARCHABLE, SUBJECT)]
        numbers = self._candidates(tx, query.inboxes, texts)
        return [] if numbers == [] else scan_buffer(tx, query, numbers)

    def _candidates(
        self, tx: Transaction, inboxes: Numbers, texts: Sequence[bytes]
    ) -> list[int] | None:
        """The messages to scan; None means all."""
        remembered, key = tx.remembered, (Buffer, inboxes)
        if remembered is None:
            return None
        buffered: BufferedMessages | None = remembered.get(key)
        longest = max(map(len, texts), default=0)
        if buffered is None and longest < _GRAM_BYTES and has_buffered(tx, inboxes):
            return None
        if buffered is None:
            buffered = self._read_buffer(tx, inboxes)
            if buffered is not None and buffered.is_complete:
                remembered[key] = buffered
        return None if buffered is None else buffered.candidates(texts)

    def _read_buffer(self, tx: Transaction, inboxes: Numbers) -> BufferedMessages | None:
        """The buffered messages of some inboxes, with some new filters; None if too many."""
        scope, params = within("inbox", inboxes)
        rows = tx.all(BUFFERED.format(within=scope), **params, limit=_MAX_BUFFERED + 1)
        if len(rows) > _MAX_BUFFERED:
            return None
        new = [row for row in rows if row[1] not in self._filters.columns]
        count = min(-(-len(new) // _NEW_SHARE), _MAX_NEW)
        filters = self._extend_filters(tx, inboxes, dict(new[:count]))
        columns = [filters.columns.get(stamp) for _, stamp in rows]
        numbers = [number for number, _ in rows]
        at = np.array([column or _MATCHES_ALL for column in columns], np.int64)
        return BufferedMessages(numbers, at, filters, is_complete=None not in columns)

    def _extend_filters(
        self, tx: Transaction, inboxes: Numbers, stamps: Mapping[int, int]
    ) -> BloomFilters:
        if not stamps:
            return self._filters
        scope, params = within("inbox", inboxes)
        among, numbers = any_of("message", padded(list(stamps)))
        sql = SHORT_TEXTS.format(within=scope, among=among)
        texts: dict[int, str] = dict(tx.all(sql, **params, **numbers, max_bytes=_MAX_TEXT_BYTES))
        made = np.full((len(stamps), _BYTES), 0xFF, np.uint8)
        made[[number in texts for number in stamps]] = _filters_of(
            [texts[number] for number in stamps if number in texts]
        )
        with self._lock:
            if not self._filters.has_room(len(stamps)):
                self._filters = BloomFilters()
            self._filters.add(list(stamps.values()), made)
            return self._filters


def _filters_of(texts: Sequence[str]) -> U8:
    """A filter for each text; it includes the bits of the transition to the next text."""
    encoded = [utf8(text) for text in texts]
    bits = _bits_of(b"".join(encoded))
    firsts = np.repeat(np.arange(len(texts)) * 8 * _BYTES, [len(text) for text in encoded])
    has = np.zeros((len(texts), 8 * _BYTES), np.bool_)
    has.reshape(-1)[firsts[: len(bits)] + bits] = True
    return np.packbits(has, axis=1, bitorder="little")


def _bits_of(text: bytes) -> U32:
    """The bit of the four bytes at each position."""
    count = max(len(text) - _GRAM_BYTES + 1, 0)
    grams = np.ndarray((count,), "<u4", text, strides=(1,)).astype(np.uint32)
    return grams * _FACTOR >> _UNUSED
