"""Dates that part all messages: a page far down a list is found by counting, not by looking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from postroom.store.search.arrays import Int
from postroom.store.search.masks import WORD_BITS, Counts

if TYPE_CHECKING:
    from postroom.store.search.shelf import Order, Shelf

_LOT = 128
"""So many messages of each segment stand between two ticks, unless they have one date."""

_LEAP = 64
_EVER, _NEVER = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Ticks:
    """Dates in order, and where each stands in every segment; one before all, and one after."""

    def __init__(self, shelf: Shelf, orders: Sequence[Order]) -> None:
        inner = np.unique(np.concatenate([order.dates[::_LOT] for order in orders]))
        self.dates: Int = np.concatenate([[_EVER], inner, [_NEVER]])
        self.places: Int = np.array([order.dates.searchsorted(self.dates) for order in orders])
        """By segment and tick, the first place in a mask that is not before the tick."""
        self.places += shelf.edges[:-1, np.newaxis] * WORD_BITS
        self.leaps: Int = np.append(np.arange(0, len(self.dates) - 1, _LEAP), len(self.dates) - 1)


class Ladder:
    """How many messages of a mask and of the tail are not before a tick."""

    def __init__(self, ticks: Ticks, counts: Counts, tail: Int) -> None:
        self._ticks = ticks
        self._counts = counts
        self._tail = tail
        self._all = counts.before_edges + sum(counts.between_edges) + len(tail)
        self._at_leaps = self._above(ticks.leaps)
        self._after_leap: dict[int, Int] = {}

    def first(self, most: int) -> tuple[int, int]:
        """The first tick with no more messages than this, and how many it has."""
        leap = int((-self._at_leaps).searchsorted(-most))
        if leap == 0:
            return 0, int(self._at_leaps[0])
        start, stop = self._ticks.leaps[leap - 1 : leap + 1].tolist()
        above = self._after_leap.get(leap)
        if above is None:
            above = self._after_leap[leap] = self._above(slice(start + 1, stop + 1))
        at = int((-above).searchsorted(-most))
        return start + 1 + at, int(above[at])

    def _above(self, ticks: Int | slice) -> Int:
        below = self._counts.before(self._ticks.places[:, ticks]).sum(axis=0)
        if len(self._tail):
            below += self._tail.searchsorted(self._ticks.dates[ticks])
        above: Int = self._all - below
        return above
