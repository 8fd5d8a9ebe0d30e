"""All live segments side by side, so that one mask speaks of every indexed message."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from postroom.store.search.arrays import Int
from postroom.store.search.formats import FORMATS, Format
from postroom.store.search.kinds import Kind
from postroom.store.search.masks import WORD, WORD_BITS, Mask, keep_between
from postroom.store.search.segments import Segment
from postroom.store.search.ticks import Ticks
from postroom.store.transaction import Transaction

_MOST_ORDERS = 256
ORDER = """
    SELECT part, value FROM search_rows WHERE segment = :segment AND kind = :kind ORDER BY part
"""


@dataclass(frozen=True, slots=True)
class Order:
    """The dates and numbers of the messages of a segment, by place."""

    dates: Int
    numbers: Int


class Orders:
    """Remembers the orders of segments, which never change."""

    def __init__(self) -> None:
        self._orders: OrderedDict[tuple[int, int], Order] = OrderedDict()
        self._joined: tuple[Sequence[Segment], Order] | None = None
        self._ticks: tuple[Sequence[Segment], Ticks] | None = None

    def of(self, tx: Transaction, segment: Segment) -> Order:
        """The order of one segment."""
        key = (segment.number, segment.size)
        order = self._orders.get(key)
        if order is None:
            rows = tx.all(ORDER, segment=segment.number, kind=Kind.ORDER)
            dates, numbers = (np.frombuffer(row[1], "<i8") for row in rows)
            order = self._orders[key] = Order(dates, numbers)
            while len(self._orders) > _MOST_ORDERS:
                self._orders.popitem(last=False)
        return order

    def joined(self, tx: Transaction, shelf: Shelf) -> Order:
        """The orders of all segments of a shelf, as they stand in a mask."""
        joined = self._joined  # of any thread: looked at once
        if joined is None or joined[0] != shelf.segments:
            size = int(shelf.edges[-1]) * WORD_BITS
            whole = Order(np.zeros(size, np.int64), np.zeros(size, np.int64))
            for segment in shelf.segments:
                own, first = self.of(tx, segment), shelf.first_word(segment.number) * WORD_BITS
                whole.dates[first : first + segment.size] = own.dates
                whole.numbers[first : first + segment.size] = own.numbers
            joined = self._joined = shelf.segments, whole
        return joined[1]

    def ticks(self, tx: Transaction, shelf: Shelf) -> Ticks:
        """Dates that part the messages of a shelf."""
        ticks = self._ticks
        if ticks is None or ticks[0] != shelf.segments:
            orders = [self.of(tx, segment) for segment in shelf.segments]
            ticks = self._ticks = shelf.segments, Ticks(shelf, orders)
        return ticks[1]


class Shelf:
    """Segments side by side, each from a word of its own on."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        words = [-(-segment.size // WORD_BITS) for segment in segments]
        edges = list(accumulate(words, initial=0))
        self.edges: Int = np.array(edges)
        """Where in a mask each segment begins, and where the last one ends."""
        self._formats = {segment.number: FORMATS[segment.format] for segment in segments}
        aheads = {FORMATS[segment.format].ahead for segment in segments}
        self._is_uniform = len(aheads) <= 1
        self._ahead: list[int] = [min(own) for own in zip(*aheads, strict=True)]
        self._spans = {
            segment.number: slice(first, first + count)
            for segment, first, count in zip(segments, edges, words, strict=False)
        }

    def __contains__(self, segment: int) -> bool:
        return segment in self._spans

    def by_ahead(self, stream: int, numbers: Sequence[int], most: int) -> dict[int, list[int]]:
        """Some segments by how far ahead they look in a text, as far as that matters."""
        if not numbers:
            return {}
        ahead = self.ahead_of_all(stream)
        if most <= ahead or self._is_uniform:
            return {min(ahead, most): list(numbers)}
        groups: dict[int, list[int]] = {}
        for number in numbers:
            groups.setdefault(min(self.format_of(number).ahead[stream], most), []).append(number)
        return groups

    def ahead_of_all(self, stream: int) -> int:
        """How far ahead every segment looks in a text."""
        return self._ahead[stream]

    def format_of(self, segment: int) -> Format:
        """How a segment was made."""
        return self._formats[segment]

    def first_word(self, segment: int) -> int:
        """Where in a mask a segment begins."""
        first: int = self._spans[segment].start
        return first

    def part(self, mask: Mask, segment: int) -> Mask:
        """What a mask says about one segment."""
        return mask[self._spans[segment]]

    def none(self) -> Mask:
        """A mask of nothing."""
        return np.zeros(int(self.edges[-1]), WORD)

    def all(self) -> Mask:
        """A mask of everything."""
        mask = ~self.none()
        for segment in self.segments:
            keep_between(self.part(mask, segment.number), 0, segment.size)
        return mask

    def holders(self, mask: Mask) -> list[int]:
        """The segments of which the mask has anything."""
        has_any = np.bitwise_or.reduceat(mask, self.edges[:-1]).tolist()
        return [s.number for s, some in zip(self.segments, has_any, strict=True) if some]
