"""One page of what was found, newest first, however many there are."""

from __future__ import annotations

from bisect import bisect_left
from heapq import nlargest

import numpy as np

from postroom.store.search.arrays import Bools
from postroom.store.search.segments import Segment
from postroom.store.search.shelf import Orders, Shelf
from postroom.store.search.wanted import Answer, Match, Wanted
from postroom.store.transaction import Transaction

_SHALLOW = 500


class Pager:
    """Matches in segments and in the tail, as one list in order."""

    def __init__(
        self, tx: Transaction, shelf: Shelf, orders: Orders, mask: Bools, tail: list[Match]
    ) -> None:
        self._tx = tx
        self._orders = orders
        self._tail = tail[::-1]
        self._parts = [
            (segment, part, count)
            for segment, part in shelf.parts(mask)
            if (count := int(np.count_nonzero(part)))
        ]
        self.total = len(tail) + sum(count for _, _, count in self._parts)

    def page(self, wanted: Wanted) -> Answer:
        """The page that is asked for."""
        if wanted.after is not None:
            offset = self.total - self._older(wanted.after)
            found = self._newest(wanted.limit, wanted.after)
            return Answer(tuple(number for _, number in found), self.total, offset)
        if wanted.offset >= self.total:
            return Answer((), self.total, wanted.offset)
        skip, bound = wanted.offset, None
        if wanted.offset > _SHALLOW:
            bound = self._date_at(wanted.offset)
            skip -= self.total - self._older(bound)
        found = self._newest(skip + wanted.limit, bound)[skip:]
        return Answer(tuple(number for _, number in found), self.total, wanted.offset)

    def _older(self, bound: Match) -> int:
        """How many matches are before a bound."""
        older = bisect_left(self._tail, bound)
        for segment, part, count in self._parts:
            if segment.newest < bound[0]:
                older += count
            elif segment.oldest <= bound[0]:
                older += int(np.count_nonzero(part[: self._cut(segment, bound)]))
        return older

    def _cut(self, segment: Segment, bound: Match | None) -> int:
        """The place in a segment from which on nothing is before a bound."""
        if bound is None or segment.newest < bound[0]:
            return segment.size
        order = self._orders.of(self._tx, segment)
        first = int(np.searchsorted(order.dates, bound[0]))
        last = int(np.searchsorted(order.dates, bound[0], side="right"))
        return first + int(np.searchsorted(order.numbers[first:last], bound[1]))

    def _date_at(self, offset: int) -> Match:
        """A bound that the page at *offset* is just below: so few as can be are above."""
        low = min(s.oldest for s, _, _ in self._parts) if self._parts else self._tail[0][0]
        low = min(low, self._tail[0][0]) if self._tail else low
        high = max([s.newest for s, _, _ in self._parts] + [d for d, _ in self._tail[-1:]])
        while low < high:
            middle = (low + high) // 2
            if self.total - self._older((middle + 1, 0)) <= offset:
                high = middle
            else:
                low = middle + 1
        return low + 1, 0

    def _newest(self, count: int, bound: Match | None) -> list[Match]:
        """The newest matches before a bound."""
        best = self._tail[-count:] if bound is None else []
        if bound is not None:
            end = bisect_left(self._tail, bound)
            best = self._tail[max(0, end - count) : end]
        for segment, part, _ in self._parts:
            if len(best) >= count and segment.newest < best[0][0]:
                continue
            places = last_places(part[: self._cut(segment, bound)], count)
            order = self._orders.of(self._tx, segment)
            dates, numbers = order.dates[places].tolist(), order.numbers[places].tolist()
            best = sorted(nlargest(count, [*best, *zip(dates, numbers, strict=True)]))
        return best[::-1][:count]


def last_places(part: Bools, count: int) -> np.ndarray:
    """The last places that are set, at most so many."""
    size = max(4 * count, 1024)
    while True:
        start = max(0, len(part) - size)
        places = np.flatnonzero(part[start:])
        if len(places) >= count or start == 0:
            return places[-count:] + start
        size *= 4
