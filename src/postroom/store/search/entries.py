"""Entries of rows that say where tokens meet: those that may have a string, and whose they are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from postroom.store.search.junction_rows import CUT, PER_GROUP, RANKED, UNEVEN
from postroom.store.search.masks import Marks

Ranks = tuple[int, int, bool]
"""From one rank to before another, and whether that is exact."""

ALL_RANKS: Ranks = (0, 1 << 16, True)
_MANY = 500
"""Where segments have more entries, it is quicker to look at one after the other."""


@dataclass
class Rows:
    """The rows of one segment: where its endings stand, and those that can have the string.

    The first of these begins before it.
    """

    ending: bytes | None = None
    before: bytes | None = None
    values: list[bytes] = field(default_factory=list)


def take(rows: Rows, key: bytes, inside: Entries, doubtful: Entries, *, is_pair: bool) -> None:
    """Take what the rows of one segment have of a key, and what they may have of it."""
    values = [rows.before, *rows.values] if rows.before else rows.values
    end, final = key + b"\xff", len(values) - 1
    for number, value in enumerate(values):
        row = _Row(value)
        if rows.before and 0 < number < final:
            inside.take(row, 0, len(row.docs))
            continue
        names = row.names()
        first = bisect_left(names, key)
        last = bisect_left(names, end, first)
        if is_pair and row.is_cut:
            inside.take(row, row.start(first), row.start(last))
            continue
        goes_on = last == len(names) and number < final
        low, high = row.start(first), row.start(max(first, last if goes_on else last - 1))
        if first:
            doubtful.take(row, row.start(first - 1), low)
        inside.take(row, low, high)
        doubtful.take(row, high, row.start(last))


class _Row:
    """Places where tokens meet, in groups; each group has a name not above what is in it."""

    __slots__ = ("_end", "_sizes", "_value", "docs", "is_cut", "ranks")

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._end = end = 4 + int.from_bytes(value[1:4], "big")
        self.is_cut = bool(value[0] & CUT)
        self._sizes = b""
        if value[0] & UNEVEN:
            count = value.count(b"\n", 4, end) + 1
            self._sizes = value[end : end + count]
            end += count
        half = (len(value) - end) // 2 if value[0] & RANKED else len(value) - end
        self.docs, self.ranks = value[end : end + half], value[end + half :]

    def names(self) -> list[bytes]:
        return self._value[4 : self._end].split(b"\n")

    def start(self, group: int) -> int:
        """Where the entries of a group begin."""
        if self._sizes:
            return 2 * sum(self._sizes[:group])
        return min(2 * PER_GROUP * group, len(self.docs))


class _Own(NamedTuple):
    """The entries of one segment: messages, ranks of the tokens before, and which are wanted."""

    segment: int
    wanted: Ranks
    docs: list[bytes]
    ranks: list[bytes]

    def places(self) -> bytes:
        """The messages with wanted ranks."""
        docs = b"".join(self.docs)
        if self.wanted is ALL_RANKS:
            return docs
        above = np.frombuffer(b"".join(self.ranks), "<u2") - np.uint16(self.wanted[0])
        return np.frombuffer(docs, "<u2")[above <= _widest(self.wanted)].tobytes()


def _widest(wanted: Ranks) -> int:
    """How far above the first rank the last one is."""
    return wanted[1] - 1 - wanted[0]


class Entries:
    """Places where tokens meet, of several segments."""

    __slots__ = ("_owns", "_size")

    def __init__(self) -> None:
        self._owns: list[_Own] = []
        self._size = 0

    def begin(self, segment: int, wanted: Ranks) -> None:
        """What is taken from now on is of this segment, and only these ranks of it are wanted."""
        self._owns.append(_Own(segment, wanted, [], []))

    def take(self, row: _Row, low: int, high: int) -> None:
        """Take what is between two places of a row."""
        if high > low:
            own = self._owns[-1]
            own.docs.append(row.docs[low:high])
            self._size += high - low
            if own.wanted is not ALL_RANKS:
                own.ranks.append(row.ranks[low:high] or bytes(high - low))

    def mark(self, marks: Marks) -> None:
        """Mark the messages of all entries whose ranks are wanted."""
        owns = [own for own in self._owns if own.docs]
        if not owns:
            return
        # where one wants all, all do: a token of one character has no rank in any segment
        if owns[0].wanted is ALL_RANKS or self._size > 2 * _MANY * len(owns):
            for own in owns:
                marks.add_places(own.segment, own.places())
        else:
            _mark_together(marks, owns)


def _mark_together(marks: Marks, owns: Sequence[_Own]) -> None:
    """The same for few: all segments at once."""
    segments, wanted, docs, ranks = zip(*owns, strict=True)
    lows = np.array([low for low, _, _ in wanted], np.uint16)
    widest = np.array([_widest(one) for one in wanted], np.uint16)
    at = np.arange(len(owns)).repeat([sum(map(len, own)) // 2 for own in docs])
    above = np.frombuffer(b"".join(chain.from_iterable(ranks)), "<u2") - lows[at]
    chosen = (above <= widest[at]).nonzero()[0]
    places = np.frombuffer(b"".join(chain.from_iterable(docs)), "<u2")[chosen]
    marks.add_all(segments, at[chosen], places)
