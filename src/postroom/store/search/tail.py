"""The tail, searched with filters: the texts of most of its messages need not be looked at.

A filter has a bit for every string of four bytes in a text, the same for several of them. A text
that lacks one of the bits of a query has not got the query.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from postroom.store.search.arrays import U8, U32
from postroom.store.search.characters import utf8
from postroom.store.search.scanning import has_tail, scan_tail
from postroom.store.search.wanted import Match, Wanted
from postroom.store.sql.conditions import within
from postroom.store.sql.values import any_of, in_lots
from postroom.store.transaction import Transaction

WAITING = "SELECT message, stamp FROM search_tail WHERE {within} LIMIT :most"
SHORT_TEXTS = """
    SELECT message, searchable FROM search_texts
     WHERE {within} AND message {among} AND octet_length(searchable) <= :longest
"""

_GRAM, _BITS = 4, 13
_FACTOR, _UNUSED = np.uint32(2_654_435_761), np.uint32(32 - _BITS)
_BYTES = (1 << _BITS) // 8
_EVERY_BIT = b"\xff" * _BYTES
"""The filter of a text that was not read yet, or is so long that it would have most bits."""

_LONGEST = 1 << 14
_MOST_WAITING = 1 << 11
"""An import and its merges leave a third of that; a longer tail is a rare state of things."""
_READ_AT_ONCE = 32
"""So many texts a question reads to make their filters; the next one goes on."""
_MOST_BITS = 12
"""Of so many bits a question is asked: more would hardly rule out another text."""

Inboxes = tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The messages of a tail and the filter of each, or None if there are too many.

    It is complete if no message is left whose filter could be made.
    """

    numbers: Sequence[int]
    filters: U8 | None
    is_complete: bool = True

    def perhaps(self, text: bytes) -> list[int] | None:
        """Those that may have a text; None is all, or so many that it is no use to name them."""
        if self.filters is None or not self.numbers:
            return None if self.numbers else []
        bits = np.unique(_bits_of(text))[:_MOST_BITS]
        masks = np.uint8(1) << (bits & 7).astype(np.uint8)
        places = np.flatnonzero((self.filters[:, bits >> 3] & masks).all(axis=1)).tolist()
        if 2 * len(places) > len(self.numbers):
            return None
        return [self.numbers[place] for place in places]


_NOBODY = Waiting([], None)


class Tail:
    """Remembers the filters of messages that it has seen waiting. Any thread may ask."""

    def __init__(self) -> None:
        self._filters: OrderedDict[int, bytes] = OrderedDict()

    def matches(self, tx: Transaction, wanted: Wanted) -> list[Match]:
        """The matches among the messages that are in no segment yet, newest first."""
        numbers = self._perhaps(tx, wanted.inboxes, utf8(wanted.q or ""))
        return [] if numbers == [] else scan_tail(tx, wanted, numbers)

    def _perhaps(self, tx: Transaction, inboxes: Inboxes, text: bytes) -> list[int] | None:
        """The messages to look at; None is all.

        The first question after a write makes no filters: it may be the last before the next one.
        """
        remembered, key = tx.remembered, (Tail, inboxes)
        if remembered is None:
            return None
        if key not in remembered and has_tail(tx, inboxes):
            remembered[key] = None
            return None
        waiting: Waiting | None = remembered.setdefault(key, _NOBODY)
        if waiting is None and len(text) >= _GRAM:
            waiting = self._waiting(tx, inboxes)
            if waiting.is_complete:
                remembered[key] = waiting
        return None if waiting is None else waiting.perhaps(text)

    def _waiting(self, tx: Transaction, inboxes: Inboxes) -> Waiting:
        """The tail of some inboxes, with some more filters than before."""
        scope, params = within("inbox", inboxes)
        rows = tx.all(WAITING.format(within=scope), **params, most=_MOST_WAITING + 1)
        numbers = [row[0] for row in rows]
        if len(rows) > _MOST_WAITING:
            return Waiting(numbers, None)
        new = [row for row in rows if row[1] and row[1] not in self._filters]
        self._read(tx, inboxes, dict(new[:_READ_AT_ONCE]))
        filters = b"".join(self._filters.get(stamp, _EVERY_BIT) for _, stamp in rows)
        by_message = np.frombuffer(filters, np.uint8).reshape(-1, _BYTES)
        return Waiting(numbers, by_message, len(new) <= _READ_AT_ONCE)

    def _read(self, tx: Transaction, inboxes: Inboxes, stamps: Mapping[int, int]) -> None:
        """Make the filters of some messages."""
        if not stamps:
            return
        scope, params = within("inbox", inboxes)
        among, numbers = any_of("message", in_lots(list(stamps)))
        sql = SHORT_TEXTS.format(within=scope, among=among)
        rows = tx.all(sql, **params, **numbers, longest=_LONGEST)
        made = dict(
            zip((row[0] for row in rows), _filters_of([row[1] for row in rows]), strict=True)
        )
        for number, stamp in stamps.items():
            self._filters[stamp] = made.get(number, _EVERY_BIT)
        while len(self._filters) > 2 * _MOST_WAITING:
            self._filters.popitem(last=False)


def _filters_of(texts: Sequence[str]) -> list[bytes]:
    """A filter for each text; it has the bits of where the next text begins, too."""
    encoded = [utf8(text) for text in texts]
    bits = _bits_of(b"".join(encoded))
    firsts = np.repeat(np.arange(len(texts)) * 8 * _BYTES, [len(text) for text in encoded])
    has = np.zeros((len(texts), 8 * _BYTES), np.bool_)
    has.reshape(-1)[firsts[: len(bits)] + bits] = True
    return [row.tobytes() for row in np.packbits(has, axis=1, bitorder="little")]


def _bits_of(text: bytes) -> U32:
    """The bit of the four bytes from each place on."""
    count = max(len(text) - _GRAM + 1, 0)
    grams = np.ndarray((count,), "<u4", text, strides=(1,)).astype(np.uint32)
    return grams * _FACTOR >> _UNUSED
