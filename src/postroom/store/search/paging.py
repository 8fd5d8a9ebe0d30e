"""One page of what was found, newest first, however many there are."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from postroom.store.search.arrays import Bools, Int
from postroom.store.search.segments import Segment
from postroom.store.search.shelf import Orders, Shelf
from postroom.store.search.wanted import Answer, Match, Wanted
from postroom.store.transaction import Transaction

_FEW = 300
"""So many matches may stand between a bound and the page below it."""


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
        if skip > _FEW:
            bound = self._bound_at(skip)
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
        first = int(order.dates.searchsorted(bound[0]))
        if not bound[1]:
            return first
        last = int(order.dates.searchsorted(bound[0], side="right"))
        return first + int(order.numbers[first:last].searchsorted(bound[1]))

    def _bound_at(self, offset: int) -> Match:
        """A bound with at most *offset* matches above it, and hardly fewer.

        Mail comes evenly, more or less, so the date is guessed from the counts at both ends;
        every other guess is the middle, in case it does not.
        """
        ends = [*self._tail[:1], *self._tail[-1:]]
        low = min([s.oldest for s, _, _ in self._parts] + [date for date, _ in ends])
        high = max([s.newest for s, _, _ in self._parts] + [date for date, _ in ends])
        above_low, above_high, guesses = self.total, 0, 0
        while high - low > 1 and offset - above_high > _FEW:
            middle = (low + high) // 2
            if guesses % 2 == 0:
                share = (offset - _FEW // 2 - above_high) / (above_low - above_high)
                middle = min(max(high - round((high - low) * share), low + 1), high - 1)
            above = self.total - self._older((middle + 1, 0))
            if above <= offset:
                high, above_high = middle, above
            else:
                low, above_low = middle, above
            guesses += 1
        return high + 1, 0

    def _newest(self, count: int, bound: Match | None) -> list[Match]:
        """The newest matches before a bound, newest first."""
        end = len(self._tail) if bound is None else bisect_left(self._tail, bound)
        best = self._tail[max(0, end - count) : end]
        for segment, part, _ in self._parts:
            first = 0
            if len(best) >= count:
                if segment.newest < best[0][0]:
                    continue
                first = self._cut(segment, (best[0][0], 0))
            places = last_places(part, first, self._cut(segment, bound), count)
            order = self._orders.of(self._tx, segment)
            dates, numbers = order.dates[places].tolist(), order.numbers[places].tolist()
            best = sorted([*best, *zip(dates, numbers, strict=True)])[-count:]
        return best[::-1]


def last_places(part: Bools, first: int, last: int, count: int) -> Int:
    """The last places between two that are set, at most so many."""
    size = 4 * count + 256
    while True:
        start = max(first, last - size)
        places = np.flatnonzero(part[start:last])
        if len(places) >= count or start == first:
            return places[-count:] + start
        size *= 4
