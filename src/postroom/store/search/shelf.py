"""All live segments side by side, so that one mask speaks of every indexed message."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from postroom.store.search.arrays import Bools, Int
from postroom.store.search.kinds import Kind
from postroom.store.search.segments import Segment
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


class Shelf:
    """Segments side by side: message *p* of a segment is at its base plus *p*."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        bases = list(accumulate((s.size for s in segments), initial=0))
        self.size = bases.pop()
        self._bases = {s.number: base for s, base in zip(segments, bases, strict=True)}
        self._by_number = {s.number: s for s in segments}

    def part(self, mask: Bools, number: int) -> Bools:
        """What a mask says about one segment."""
        base = self._bases[number]
        return mask[base : base + self._by_number[number].size]

    def parts(self, mask: Bools) -> Iterator[tuple[Segment, Bools]]:
        """What a mask says about each segment."""
        for segment in self.segments:
            yield segment, self.part(mask, segment.number)

    def none(self) -> Bools:
        """A mask of nothing."""
        return np.zeros(self.size, np.bool_)

    def holders(self, mask: Bools) -> list[int]:
        """The segments of which the mask has anything."""
        return [segment.number for segment, part in self.parts(mask) if part.any()]
