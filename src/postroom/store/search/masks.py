"""Sets of messages of all segments as bits: each segment begins with a whole word."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from postroom.store.search.arrays import U16, Int

if TYPE_CHECKING:
    from postroom.store.search.shelf import Shelf

Mask = NDArray[np.uint64]
WORD = np.dtype("<u8")
WORD_BITS = 64

_BITS = np.array([1 << bit for bit in range(8)], np.uint8)
_BELOW = np.array([(1 << bit) - 1 for bit in range(WORD_BITS)], np.uint64)
_BIT = [np.uint64(1 << bit) for bit in range(WORD_BITS)]
_FEW = 16
"""So few places are set sooner one by one."""
_SPARSE = 25
"""One place for so many bytes, and more, are set sooner in an array that is packed afterwards."""


class Marks:
    """Messages that were found in one segment or another, to become one mask."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._bits: dict[int, list[bytes]] = {}
        self._places: list[bytes] = []
        self._segments: list[int] = []
        self._arrays: list[Int] = []

    def __bool__(self) -> bool:
        return bool(self._bits or self._places or self._arrays)

    def add(self, segment: int, value: bytes) -> None:
        """Take a set of a segment as it is written in rows, unless no search uses the segment."""
        if segment not in self._shelf:
            return
        if value[0]:
            self._bits.setdefault(segment, []).append(value)
        else:
            self.add_places(segment, value[1:])

    def add_places(self, segment: int, places: bytes) -> None:
        """Take some places of a segment, two bytes each."""
        if places:
            self._places.append(places)
            self._segments.append(segment)

    def add_all(self, segments: Sequence[int], at: Int, places: U16) -> None:
        """Take places of several segments; `at` says of each place which of them it is in."""
        if len(places):
            bases: Int = np.array([self._base(segment) for segment in segments], np.int64)
            self._arrays.append(bases[at] + places)

    def _base(self, segment: int) -> int:
        return self._shelf.first_word(segment) * WORD_BITS

    def mask(self) -> Mask:
        """All of them."""
        mask = self._union() if self._bits else self._shelf.none()
        if self._places:
            self._set_places(mask)
        for places in self._arrays:
            set_places(mask, places)
        return mask

    def _union(self) -> Mask:
        pieces: list[bytes | memoryview] = []
        for segment in self._shelf.segments:
            values = self._bits.get(segment.number)
            pieces.append(memoryview(values[0])[1:] if values else b"")
            pieces.append(bytes(-(-segment.size // WORD_BITS) * 8 - len(pieces[-1])))
        mask = np.frombuffer(bytearray().join(pieces), WORD)
        for number, values in self._bits.items():
            for value in values[1:]:
                octets = self._shelf.part(mask, number).view(np.uint8)
                octets[: len(value) - 1] |= np.frombuffer(value, np.uint8, offset=1)
        return mask

    def _set_places(self, mask: Mask) -> None:
        bases = [self._base(segment) for segment in self._segments]
        if sum(map(len, self._places)) <= 2 * _FEW:
            for base, own in zip(bases, self._places, strict=True):
                for place in np.frombuffer(own, "<u2").tolist():
                    mask[(base + place) // WORD_BITS] |= _BIT[place % WORD_BITS]
            return
        places = np.repeat(bases, [len(own) // 2 for own in self._places])
        places += np.frombuffer(b"".join(self._places), "<u2")
        set_places(mask, places)


def set_places(mask: Mask, places: Int) -> None:
    """Add some places to a mask."""
    octets = mask.view(np.uint8)
    if len(places) * _SPARSE < len(octets):
        np.bitwise_or.at(octets, places >> 3, _BITS[places & 7])
    else:
        found = np.zeros(len(octets) * 8, np.bool_)
        found[places] = True
        octets |= np.packbits(found, bitorder="little")


def keep_between(part: Mask, first: int, last: int) -> None:
    """Clear all places of a segment but those between two."""
    low, high = first // WORD_BITS, last // WORD_BITS
    part[:low] = 0
    if first % WORD_BITS:
        part[low] &= ~np.uint64(_below(first))
    if last % WORD_BITS:
        part[high] &= np.uint64(_below(last))
        high += 1
    part[high:] = 0


def places_of(words: Mask) -> Int:
    """The places that are set, in order."""
    used = words.nonzero()[0]
    return _spread(used, words[used])


def places_within(mask: Mask, words: Int) -> Int:
    """The places that are set in some words of a mask, in order."""
    return _spread(words, mask[words])


def _spread(at: Int, words: Mask) -> Int:
    """The places that are set in some words, which stand at these."""
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").nonzero()[0]
    places: Int = at[bits // WORD_BITS] * WORD_BITS + bits % WORD_BITS
    return places


def last_places(part: Mask, first: int, last: int, count: int) -> Int:
    """The last places between two that are set, at most so many."""
    low = first // WORD_BITS
    words = part[low : last // WORD_BITS + 1]
    used = words.nonzero()[0]
    if len(used) > count:  # what is set in the last may all be too high
        low, words = low + int(used[-count - 1]), words[used[-count - 1] :]
    places = places_of(words) + low * WORD_BITS
    start, stop = places.searchsorted((first, last)).tolist()
    return places[max(start, stop - count) : stop]


class Counts:
    """How many messages of a mask are before any place."""

    def __init__(self, mask: Mask, edges: Int) -> None:
        self._mask = mask
        self._before = np.zeros(len(mask) + 1, np.int64)
        np.cumsum(np.bitwise_count(mask), out=self._before[1:])
        before: list[int] = self._before[edges].tolist()
        self.between_edges = [after - own for own, after in pairwise(before)]
        self.before_edges = sum(before[:-1])
        """The sum of what is before the first place of each segment."""

    def before(self, places: Int) -> Int:
        """How many are set before each of some places."""
        words, last = places // WORD_BITS, len(self._mask) - 1
        inside = self._mask[np.minimum(words, last)] & _BELOW[places % WORD_BITS]
        before: Int = self._before[words] + np.bitwise_count(inside)
        return before

    def between(self, word: int, place: int) -> int:
        """How many are set from a word on, in so many places."""
        last, rest = word + place // WORD_BITS, place % WORD_BITS
        count = int(self._before[last] - self._before[word])
        if rest:
            count += (int(self._mask[last]) & _below(rest)).bit_count()
        return count


def _below(place: int) -> int:
    """A word with all bits set that are before a place."""
    return (1 << place % WORD_BITS) - 1
