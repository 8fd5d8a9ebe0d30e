"""One page of what was found, newest first, however many there are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from postroom.store.search.arrays import Int, spans
from postroom.store.search.masks import (
    WORD_BITS,
    Counts,
    Mask,
    last_places,
    places_of,
    places_within,
)
from postroom.store.search.segments import Segment
from postroom.store.search.shelf import Order, Orders, Shelf
from postroom.store.search.ticks import Ladder, Ticks
from postroom.store.search.wanted import Answer, Match, Wanted
from postroom.store.transaction import Transaction

_NEAR = 60
"""So far down, a page is taken from the top."""

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
        self.total = len(tail) + int(np.bitwise_count(mask).sum())

    def page(self, wanted: Wanted) -> Answer:
        """The page that is asked for."""
        if wanted.after is not None:
            offset = self._above(wanted.after, self._holders)
            found = self._newest(wanted.limit, wanted.after)
            return Answer(tuple(number for _, number in found), self.total, offset)
        if wanted.offset >= self.total:
            return Answer((), self.total, wanted.offset)
        if wanted.offset <= _NEAR or self.total <= _FEW:
            found = self._newest(wanted.offset + wanted.limit, None)[wanted.offset :]
        else:
            found = self._far_down(wanted.offset, wanted.limit)
        return Answer(tuple(number for _, number in found), self.total, wanted.offset)

    @cached_property
    def _counts(self) -> Counts:
        return Counts(self._mask, self._shelf.edges)

    @cached_property
    def _holders(self) -> list[tuple[Segment, int]]:
        """The segments with matches, and how many each has."""
        counts = zip(self._shelf.segments, self._counts.between_edges, strict=True)
        return [(segment, count) for segment, count in counts if count]

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

    def _far_down(self, offset: int, limit: int) -> list[Match]:
        """A page anywhere: the matches between two ticks around it, and from these its own."""
        ticks = self._orders.ticks(self._tx, self._shelf)
        tail = np.array([date for date, _ in self._tail], np.int64)
        ladder = Ladder(ticks, self._counts, tail)
        newer, above = ladder.first(offset)
        older = max(0, ladder.first(offset + limit - 1)[0] - 1)
        found = self._between(ticks, older, newer)
        end = len(found) - (offset - above)
        return found[max(0, end - limit) : end][::-1]

    def _between(self, ticks: Ticks, older: int, newer: int) -> list[Match]:
        """All matches from one tick on until another, oldest first."""
        since, before = int(ticks.dates[older]), int(ticks.dates[newer])
        first = ticks.places[:, older] // WORD_BITS
        last = -(-ticks.places[:, newer] // WORD_BITS)
        places = places_within(self._mask, spans(first, last - first))
        order = self._orders.joined(self._tx, self._shelf)
        dates = order.dates[places]
        places = places[(dates >= since) & (dates < before)]
        start, stop = bisect_left(self._tail, (since, 0)), bisect_left(self._tail, (before, 0))
        return self._in_order(places, order, self._tail[start:stop])

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
        order = self._orders.joined(self._tx, self._shelf)
        found = self._in_order(places_of(self._mask), order, self._tail)
        return found if bound is None else found[: bisect_left(found, bound)]

    def _in_order(self, places: Int, order: Order, tail: list[Match]) -> list[Match]:
        """The matches at some places and those of the tail, oldest first."""
        dates, numbers = order.dates[places].tolist(), order.numbers[places].tolist()
        return sorted([*tail, *zip(dates, numbers, strict=True)])
