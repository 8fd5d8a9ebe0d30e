"""One page of what was found, newest first, however many there are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from postroom.store.search.masks import Counts, Mask, last_places, places_of
from postroom.store.search.segments import Segment
from postroom.store.search.shelf import Orders, Shelf
from postroom.store.search.wanted import Answer, Match, Wanted
from postroom.store.transaction import Transaction

_BETWEEN = 60
"""So many matches may stand between a bound and the page below it."""

_CLEVER = 3
"""So many guesses usually hit."""

_FEW = 300
"""So many matches are sorted at once."""


class Pager:
    """Matches in segments and in the tail, as one list in order."""

    def __init__(
        self, tx: Transaction, shelf: Shelf, orders: Orders, mask: Mask, tail: list[Match]
    ) -> None:
        self._tx = tx
        self._orders = orders
        self._tail = tail[::-1]
        self._shelf = shelf
        self._mask = mask
        self._counts = Counts(mask)
        counts = self._counts.of_each(shelf.edges)
        self._holders = [
            (segment, count) for segment, count in zip(shelf.segments, counts, strict=True) if count
        ]
        self.total = len(tail) + sum(count for _, count in self._holders)

    def page(self, wanted: Wanted) -> Answer:
        """The page that is asked for."""
        if wanted.after is not None:
            offset = self._above(wanted.after, self._holders)
            found = self._newest(wanted.limit, wanted.after)
            return Answer(tuple(number for _, number in found), self.total, offset)
        if wanted.offset >= self.total:
            return Answer((), self.total, wanted.offset)
        skip, bound = wanted.offset, None
        if skip > _BETWEEN:
            bound, above = self._bound_at(skip)
            skip -= above
        found = self._newest(skip + wanted.limit, bound)[skip:]
        return Answer(tuple(number for _, number in found), self.total, wanted.offset)

    def _before(self, segment: Segment, place: int) -> int:
        """How many matches of a segment are before a place."""
        return self._counts.between(self._shelf.first_word(segment.number), place)

    def _cut(self, segment: Segment, bound: Match | None) -> int:
        """The place in a segment from which on nothing is before a bound."""
        if bound is None or segment.newest < bound[0]:
            return segment.size
        if segment.oldest > bound[0]:
            return 0
        order = self._orders.of(self._tx, segment)
        first = int(order.dates.searchsorted(bound[0]))
        if not bound[1]:
            return first
        last = int(order.dates.searchsorted(bound[0], side="right"))
        return first + int(order.numbers[first:last].searchsorted(bound[1]))

    def _bound_at(self, offset: int) -> tuple[Match, int]:
        """A bound with at most *offset* matches above it, and hardly fewer; and how many.

        Mail comes evenly, more or less, so the date is guessed from the counts at both ends;
        after a few guesses every other is the middle, in case it does not.
        """
        ends = [*self._tail[:1], *self._tail[-1:]]
        low = min([s.oldest for s, _ in self._holders] + [date for date, _ in ends])
        high = max([s.newest for s, _ in self._holders] + [date for date, _ in ends])
        above_low, above_high, guesses = self.total, 0, 0
        holders, above_all = self._holders, 0
        while high - low > 1 and offset - above_high > _BETWEEN:
            middle = (low + high) // 2
            if guesses < _CLEVER or guesses % 2 == 0:
                share = (offset - _BETWEEN // 2 - above_high) / (above_low - above_high)
                middle = min(max(high - round((high - low) * share), low + 1), high - 1)
            above = above_all + self._above((middle + 1, 0), holders)
            if above <= offset:
                high, above_high = middle, above
            else:
                low, above_low = middle, above
            above_all += sum(count for s, count in holders if s.oldest > high)
            holders = [(s, count) for s, count in holders if s.oldest <= high and s.newest > low]
            guesses += 1
        return (high + 1, 0), above_high

    def _above(self, bound: Match, holders: Sequence[tuple[Segment, int]]) -> int:
        """How many matches of the tail and of some segments are not before a bound."""
        above = len(self._tail) - bisect_left(self._tail, bound)
        for segment, count in holders:
            if segment.oldest > bound[0]:
                above += count
            elif segment.newest >= bound[0]:
                above += count - self._before(segment, self._cut(segment, bound))
        return above

    def _newest(self, count: int, bound: Match | None) -> list[Match]:
        """The newest matches before a bound, newest first."""
        if self.total <= _FEW:
            return self._all(bound)[-count:][::-1]
        end = len(self._tail) if bound is None else bisect_left(self._tail, bound)
        best = self._tail[max(0, end - count) : end]
        for segment, _ in self._holders:
            first = 0
            if len(best) >= count:
                if segment.newest < best[0][0]:
                    continue
                first = self._cut(segment, (best[0][0], 0))
            last = self._cut(segment, bound)
            if last <= first:
                continue
            part = self._shelf.part(self._mask, segment.number)
            places = last_places(part, first, last, count)
            order = self._orders.of(self._tx, segment)
            dates, numbers = order.dates[places].tolist(), order.numbers[places].tolist()
            best = sorted([*best, *zip(dates, numbers, strict=True)])[-count:]
        return best[::-1]

    def _all(self, bound: Match | None) -> list[Match]:
        """All matches before a bound, oldest first."""
        places, order = places_of(self._mask), self._orders.joined(self._tx, self._shelf)
        dates, numbers = order.dates[places].tolist(), order.numbers[places].tolist()
        found = sorted([*self._tail, *zip(dates, numbers, strict=True)])
        return found if bound is None else found[: bisect_left(found, bound)]
