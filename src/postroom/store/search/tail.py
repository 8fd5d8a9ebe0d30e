"""The tail, searched with filters: the texts of most of its messages need not be looked at.

A filter has a bit for every string of four bytes in a text, the same for several of them. A text
that lacks one of the bits of a query has not got the query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from postroom.store.search.arrays import U8, U32, Int
from postroom.store.search.characters import utf8
from postroom.store.search.scanning import has_tail, scan_tail
from postroom.store.search.sets import NO_STAMP
from postroom.store.search.wanted import Match, Wanted
from postroom.store.sql.conditions import within
from postroom.store.sql.values import any_of, in_lots
from postroom.store.transaction import Transaction

WAITING = """
    SELECT message, stamp FROM search_tail WHERE {within} ORDER BY message LIMIT :most
"""
SHORT_TEXTS = """
    SELECT message, searchable FROM search_texts
     WHERE {within} AND message {among} AND octet_length(searchable) <= :longest
"""

_GRAM, _BITS = 4, 13
_FACTOR, _UNUSED = np.uint32(2_654_435_761), np.uint32(32 - _BITS)
_BYTES = (1 << _BITS) // 8
_LONGEST = 1 << 13
"""A text of more bytes would have most bits."""

_MOST_KEPT = 1 << 12
_MOST_WAITING = 1 << 11
"""More than an import and the merges beside it leave."""
_SHARE, _MOST_READ = 8, 8
"""A question makes filters for one of so many texts that have none, up to a number: it takes about
as long as to look at all of these texts, which the question has to do as well."""
_MOST_BITS = 12
"""Of so many bits a question is asked: more would hardly rule out another text."""
_MOST_NAMED = 200
_ANY = 0

Inboxes = tuple[int, ...] | None


class Filters:
    """The filters of some texts, side by side: a row has one byte of each.

    What is there never changes. The first has every bit: it is for texts that nobody has read yet,
    and for those that are too long.
    """

    def __init__(self) -> None:
        self.rows: U8 = np.zeros((_BYTES, _MOST_KEPT), np.uint8)
        self.rows[:, _ANY] = 0xFF
        self.places: dict[int, int] = {NO_STAMP: _ANY}
        self._next = _ANY + 1

    def has_room(self, count: int) -> bool:
        """Whether so many more can be kept."""
        return self._next + count <= _MOST_KEPT

    def add(self, stamps: Sequence[int], filters: U8) -> None:
        """Keep a filter for each stamp."""
        first = self._next
        self._next += len(stamps)
        self.rows[:, first : self._next] = filters.T
        self.places.update(zip(stamps, range(first, self._next), strict=True))


@dataclass(frozen=True, slots=True)
class Waiting:
    """The messages of a tail, and where their filters are.

    It is complete if no text is left that should be read.
    """

    numbers: Sequence[int]
    places: Int
    filters: Filters
    is_complete: bool

    def perhaps(self, text: bytes) -> list[int] | None:
        """Those that may have a text; None is all, or so many that it is no use to name them."""
        if not self.numbers:
            return []
        bits = np.unique(_bits_of(text))[:_MOST_BITS]
        masks = np.uint8(1) << (bits & 7).astype(np.uint8)
        may_have = (self.filters.rows[bits >> 3] & masks[:, None]).all(axis=0)
        found = np.flatnonzero(may_have[self.places]).tolist()
        if len(found) > min(len(self.numbers) // 4, _MOST_NAMED):
            return None
        return [self.numbers[at] for at in found]


class Tail:
    """Remembers the filters of messages that it has seen waiting. Any thread may ask."""

    def __init__(self) -> None:
        self._filters = Filters()
        self._adding = Lock()

    def matches(self, tx: Transaction, wanted: Wanted) -> list[Match]:
        """The matches among the messages that are in no segment yet, newest first."""
        numbers = self._perhaps(tx, wanted.inboxes, utf8(wanted.q or ""))
        return [] if numbers == [] else scan_tail(tx, wanted, numbers)

    def _perhaps(self, tx: Transaction, inboxes: Inboxes, text: bytes) -> list[int] | None:
        """The messages to look at; None is all."""
        remembered, key = tx.remembered, (Tail, inboxes)
        if remembered is None:
            return None
        waiting: Waiting | None = remembered.get(key)
        if waiting is None and len(text) < _GRAM and has_tail(tx, inboxes):
            return None
        if waiting is None:
            waiting = self._waiting(tx, inboxes)
            if waiting is not None and waiting.is_complete:
                remembered[key] = waiting
        return None if waiting is None else waiting.perhaps(text)

    def _waiting(self, tx: Transaction, inboxes: Inboxes) -> Waiting | None:
        """Who waits in some inboxes, with some more filters than before; None is too many."""
        scope, params = within("inbox", inboxes)
        rows = tx.all(WAITING.format(within=scope), **params, most=_MOST_WAITING + 1)
        if len(rows) > _MOST_WAITING:
            return None
        new = [row for row in rows if row[1] not in self._filters.places]
        some = min(-(-len(new) // _SHARE), _MOST_READ)
        filters = self._with_more(tx, inboxes, dict(new[:some]))
        places = [filters.places.get(stamp) for _, stamp in rows]
        numbers = [number for number, _ in rows]
        at = np.array([place or _ANY for place in places], np.int64)
        return Waiting(numbers, at, filters, is_complete=None not in places)

    def _with_more(self, tx: Transaction, inboxes: Inboxes, stamps: Mapping[int, int]) -> Filters:
        """The filters that we have, and those of some more messages."""
        if not stamps:
            return self._filters
        scope, params = within("inbox", inboxes)
        among, numbers = any_of("message", in_lots(list(stamps)))
        sql = SHORT_TEXTS.format(within=scope, among=among)
        texts: dict[int, str] = dict(tx.all(sql, **params, **numbers, longest=_LONGEST))
        made = np.full((len(stamps), _BYTES), 0xFF, np.uint8)
        made[[number in texts for number in stamps]] = _filters_of(
            [texts[number] for number in stamps if number in texts]
        )
        with self._adding:
            if not self._filters.has_room(len(stamps)):
                self._filters = Filters()
            self._filters.add(list(stamps.values()), made)
            return self._filters


def _filters_of(texts: Sequence[str]) -> U8:
    """A filter for each text; it has the bits of where the next text begins, too."""
    encoded = [utf8(text) for text in texts]
    bits = _bits_of(b"".join(encoded))
    firsts = np.repeat(np.arange(len(texts)) * 8 * _BYTES, [len(text) for text in encoded])
    has = np.zeros((len(texts), 8 * _BYTES), np.bool_)
    has.reshape(-1)[firsts[: len(bits)] + bits] = True
    return np.packbits(has, axis=1, bitorder="little")


def _bits_of(text: bytes) -> U32:
    """The bit of the four bytes from each place on."""
    count = max(len(text) - _GRAM + 1, 0)
    grams = np.ndarray((count,), "<u4", text, strides=(1,)).astype(np.uint32)
    return grams * _FACTOR >> _UNUSED
