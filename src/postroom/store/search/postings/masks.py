"""Masks: sets of messages of all segments of a snapshot as bits. Each segment starts at a whole
word."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from postroom.store.search.tokens.arrays import U16, Bools, Int


def encode_doc_ids(positions: U16, size: int) -> bytes:
    """`message_sets.encode_set` for an array."""
    if 16 * len(positions) <= size:
        return b"\0" + positions.astype("<u2").tobytes()
    mask = np.zeros(size, np.bool_)
    mask[positions] = True
    return b"\1" + np.packbits(mask, bitorder="little").tobytes()


def encode_mask(mask: Bools) -> bytes:
    """`message_sets.encode_set` for a mask of the segment."""
    if 16 * int(np.count_nonzero(mask)) <= len(mask):
        return b"\0" + np.flatnonzero(mask).astype("<u2").tobytes()
    return b"\1" + np.packbits(mask, bitorder="little").tobytes()


if TYPE_CHECKING:
    from postroom.store.search.query.snapshot import Snapshot

Mask = NDArray[np.uint64]
WORD = np.dtype("<u8")
WORD_BITS = 64

_BITS = np.array([1 << bit for bit in range(8)], np.uint8)
_BELOW = np.array([(1 << bit) - 1 for bit in range(WORD_BITS)], np.uint64)
_BIT = [np.uint64(1 << bit) for bit in range(WORD_BITS)]
_ONE_BY_ONE = 16
"""Up to this many bits, setting them one by one is faster."""
_SPARSE_BYTES = 25
"""With more than one bit per this many bytes, packing an array of booleans is faster."""


class MaskBuilder:
    """Collects messages of several segments and builds one mask."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._bits: dict[int, list[bytes]] = {}
        self._doc_ids: list[bytes] = []
        self._segments: list[int] = []
        self._arrays: list[Int] = []

    def __bool__(self) -> bool:
        return bool(self._bits or self._doc_ids or self._arrays)

    def add(self, segment: int, value: bytes) -> None:
        """Add an encoded set; ignored if the segment is not in the snapshot."""
        if segment not in self._snapshot:
            return
        if value[0]:
            self._bits.setdefault(segment, []).append(value)
        else:
            self.add_doc_ids(segment, value[1:])

    def add_doc_ids(self, segment: int, positions: bytes) -> None:
        """Add doc ids of a segment, two bytes each."""
        if positions:
            self._doc_ids.append(positions)
            self._segments.append(segment)

    def add_to_segments(self, segments: Sequence[int], at: Int, positions: U16) -> None:
        """Add doc ids of several segments; *at* is the index of the segment of each."""
        if len(positions):
            bases: Int = np.array([self._first_position(segment) for segment in segments], np.int64)
            self._arrays.append(bases[at] + positions)

    def _first_position(self, segment: int) -> int:
        return self._snapshot.first_word(segment) * WORD_BITS

    def mask(self) -> Mask:
        mask = self._union() if self._bits else self._snapshot.none()
        if self._doc_ids:
            self._set_doc_ids(mask)
        for positions in self._arrays:
            set_bits(mask, positions)
        return mask

    def _union(self) -> Mask:
        pieces: list[bytes | memoryview] = []
        for segment in self._snapshot.segments:
            values = self._bits.get(segment.number)
            pieces.append(memoryview(values[0])[1:] if values else b"")
            pieces.append(bytes(-(-segment.size // WORD_BITS) * 8 - len(pieces[-1])))
        mask = np.frombuffer(bytearray().join(pieces), WORD)
        for number, values in self._bits.items():
            for value in values[1:]:
                octets = self._snapshot.part(mask, number).view(np.uint8)
                octets[: len(value) - 1] |= np.frombuffer(value, np.uint8, offset=1)
        return mask

    def _set_doc_ids(self, mask: Mask) -> None:
        bases = [self._first_position(segment) for segment in self._segments]
        if sum(map(len, self._doc_ids)) <= 2 * _ONE_BY_ONE:
            for base, own in zip(bases, self._doc_ids, strict=True):
                for position in np.frombuffer(own, "<u2").tolist():
                    mask[(base + position) // WORD_BITS] |= _BIT[position % WORD_BITS]
            return
        positions = np.repeat(bases, [len(own) // 2 for own in self._doc_ids])
        positions += np.frombuffer(b"".join(self._doc_ids), "<u2")
        set_bits(mask, positions)


def set_bits(mask: Mask, positions: Int) -> None:
    """Set some positions of a mask."""
    octets = mask.view(np.uint8)
    if len(positions) * _SPARSE_BYTES < len(octets):
        np.bitwise_or.at(octets, positions >> 3, _BITS[positions & 7])
    else:
        found = np.zeros(len(octets) * 8, np.bool_)
        found[positions] = True
        octets |= np.packbits(found, bitorder="little")


def keep_range(part: Mask, first: int, last: int) -> None:
    """Clear all positions of a segment except those from *first* to before *last*."""
    low, high = first // WORD_BITS, last // WORD_BITS
    part[:low] = 0
    if first % WORD_BITS:
        part[low] &= ~np.uint64(_below(first))
    if last % WORD_BITS:
        part[high] &= np.uint64(_below(last))
        high += 1
    part[high:] = 0


def positions_of(words: Mask) -> Int:
    """The positions that are set, in order."""
    used = words.nonzero()[0]
    return _positions(used, words[used])


def positions_within(mask: Mask, words: Int) -> Int:
    """The positions that are set in some words of a mask, in order."""
    return _positions(words, mask[words])


def _positions(at: Int, words: Mask) -> Int:
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").nonzero()[0]
    positions: Int = at[bits // WORD_BITS] * WORD_BITS + bits % WORD_BITS
    return positions


def last_positions(part: Mask, first: int, last: int, count: int) -> Int:
    """The last *count* positions that are set between *first* and *last*."""
    low = first // WORD_BITS
    words = part[low : last // WORD_BITS + 1]
    used = words.nonzero()[0]
    if len(used) > count:  # what is set in the last may all be too high
        low, words = low + int(used[-count - 1]), words[used[-count - 1] :]
    positions = positions_of(words) + low * WORD_BITS
    start, stop = positions.searchsorted((first, last)).tolist()
    return positions[max(start, stop - count) : stop]


class PrefixCounts:
    """Counts the messages of a mask before any position."""

    def __init__(self, mask: Mask, word_offsets: Int) -> None:
        self._mask = mask
        self._before = np.zeros(len(mask) + 1, np.int64)
        np.cumsum(np.bitwise_count(mask), out=self._before[1:])
        before: list[int] = self._before[word_offsets].tolist()
        self.by_segment = [after - own for own, after in pairwise(before)]
        self.before_segments = sum(before[:-1])
        """The sum of the counts before the first position of each segment."""

    def before(self, positions: Int) -> Int:
        """How many bits are set before each of some positions."""
        words, last = positions // WORD_BITS, len(self._mask) - 1
        inside = self._mask[np.minimum(words, last)] & _BELOW[positions % WORD_BITS]
        before: Int = self._before[words] + np.bitwise_count(inside)
        return before

    def between(self, word: int, position: int) -> int:
        """How many of the next *position* bits are set from a word on."""
        last, rest = word + position // WORD_BITS, position % WORD_BITS
        count = int(self._before[last] - self._before[word])
        if rest:
            count += (int(self._mask[last]) & _below(rest)).bit_count()
        return count


def _below(position: int) -> int:
    """A word with all bits below a position set."""
    return (1 << position % WORD_BITS) - 1
