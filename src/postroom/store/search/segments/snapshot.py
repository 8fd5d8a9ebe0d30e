"""A snapshot: all live segments as one search sees them, and masks: sets of their messages as bits.

Each segment starts at a whole word of a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from postroom.store.search.segments.segment import FORMATS, Format, Segment
from postroom.store.search.tokens.arrays import U16, Bools, Int

Mask = NDArray[np.uint64]
WORD = np.dtype("<u8")
WORD_BITS = 64

_BITS = np.array([1 << bit for bit in range(8)], np.uint8)
_BELOW = np.array([(1 << bit) - 1 for bit in range(WORD_BITS)], np.uint64)
"""Words with all bits below a position set."""
_BIT = [np.uint64(1 << bit) for bit in range(WORD_BITS)]
_ONE_BY_ONE = 16
"""Up to this many bits, setting them one by one is faster."""
_SPARSE_BYTES = 25
"""With more than one bit per this many bytes, packing an array of booleans is faster."""


def encode_doc_ids(doc_ids: U16 | Int, size: int) -> bytes:
    """`message_sets.encode_set` for an array; a list keeps its order."""
    if 16 * len(doc_ids) <= size:
        return b"\0" + doc_ids.astype("<u2").tobytes()
    mask = np.zeros(size, np.bool_)
    mask[doc_ids] = True
    return encode_mask(mask)


def encode_mask(mask: Bools) -> bytes:
    """`message_sets.encode_set` for a mask of the segment."""
    if 16 * int(np.count_nonzero(mask)) <= len(mask):
        return b"\0" + np.flatnonzero(mask).astype("<u2").tobytes()
    return b"\1" + np.packbits(mask, bitorder="little").tobytes()


class Snapshot:
    """Consecutive segments; each starts at a word boundary of a mask."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        words = [-(-segment.size // WORD_BITS) for segment in segments]
        offsets = list(accumulate(words, initial=0))
        self.word_offsets: Int = np.array(offsets)
        """The word at which each segment starts, and the end of the last one."""
        self._formats = {segment.number: FORMATS[segment.format] for segment in segments}
        lookaheads = {FORMATS[segment.format].lookahead for segment in segments}
        self._is_uniform = len(lookaheads) <= 1
        self._lookahead: list[int] = [
            min(own[stream] for own in lookaheads if stream < len(own))
            for stream in range(max(map(len, lookaheads), default=0))
        ]
        self._spans = {
            segment.number: slice(first, first + count)
            for segment, first, count in zip(segments, offsets, words, strict=False)
        }

    def __contains__(self, segment: int) -> bool:
        return segment in self._spans

    def by_lookahead(self, stream: int, numbers: Sequence[int], limit: int) -> dict[int, list[int]]:
        """Some segments by their lookahead in a stream, capped at *limit*."""
        if not numbers:
            return {}
        lookahead = self.min_lookahead(stream)
        if limit <= lookahead or self._is_uniform:
            return {min(lookahead, limit): list(numbers)}
        groups: dict[int, list[int]] = {}
        for number in numbers:
            own = min(self.format_of(number).lookahead[stream], limit)
            groups.setdefault(own, []).append(number)
        return groups

    def min_lookahead(self, stream: int) -> int:
        """The lookahead that every segment with this stream has in it."""
        return self._lookahead[stream]

    def has_stream(self, stream: int, segment: int) -> bool:
        return stream < len(self.format_of(segment).lookahead)

    def format_of(self, segment: int) -> Format:
        return self._formats[segment]

    def first_word(self, segment: int) -> int:
        return int(self._spans[segment].start)

    def part(self, mask: Mask, segment: int) -> Mask:
        """The words of one segment in a mask."""
        return mask[self._spans[segment]]

    def none(self) -> Mask:
        return np.zeros(int(self.word_offsets[-1]), WORD)

    def all(self) -> Mask:
        mask = ~self.none()
        for segment in self.segments:
            keep_range(self.part(mask, segment.number), 0, segment.size)
        return mask

    def segments_in(self, mask: Mask) -> list[int]:
        """The segments with at least one message in the mask."""
        has_any = np.bitwise_or.reduceat(mask, self.word_offsets[:-1]).tolist()
        return [s.number for s, some in zip(self.segments, has_any, strict=True) if some]


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


class SetCounter:
    """Counts the messages of masks in each of many sets, without a mask for each set."""

    def __init__(self, snapshot: Snapshot, masks: Sequence[Mask], sets: int) -> None:
        self._snapshot, self._masks = snapshot, masks
        self._counts: Int = np.zeros((len(masks), sets), np.int64)
        self._lists: list[tuple[int, int, bytes]] = []

    def add(self, number: int, segment: int, value: bytes) -> None:
        """Add an encoded set; ignored if the segment is not in the snapshot."""
        if segment not in self._snapshot or len(value) == 1:
            return
        if not value[0]:
            self._lists.append((number, self._snapshot.first_word(segment) * WORD_BITS, value[1:]))
            return
        octets = np.frombuffer(value, np.uint8, offset=1)
        for counts, mask in zip(self._counts, self._masks, strict=True):
            part = self._snapshot.part(mask, segment).view(np.uint8)[: len(octets)]
            counts[number] += np.bitwise_count(part & octets).sum()

    def counts(self) -> list[list[int]]:
        """For each mask, how many of its messages are in each set."""
        if self._lists:
            numbers, bases, lists = zip(*self._lists, strict=True)
            sizes = np.array([len(own) // 2 for own in lists])
            positions = np.repeat(np.array(bases, np.uint32), sizes)
            positions += np.frombuffer(b"".join(lists), "<u2")
            starts = np.cumsum(sizes) - sizes
            for counts, mask in zip(self._counts, self._masks, strict=True):
                is_in = np.unpackbits(mask.view(np.uint8), bitorder="little")[positions]
                np.add.at(counts, list(numbers), np.add.reduceat(is_in, starts, dtype=np.int64))
            self._lists = []
        return [counts.tolist() for counts in self._counts]


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
        part[low] &= ~_BELOW[first % WORD_BITS]
    if last % WORD_BITS:
        part[high] &= _BELOW[last % WORD_BITS]
        high += 1
    part[high:] = 0


def positions_of(words: Mask) -> Int:
    """The positions that are set, in order."""
    return positions_within(words, words.nonzero()[0])


def positions_within(mask: Mask, words: Int) -> Int:
    """The positions that are set in some words of a mask, in order."""
    bits = np.unpackbits(mask[words].view(np.uint8), bitorder="little").nonzero()[0]
    positions: Int = words[bits // WORD_BITS] * WORD_BITS + bits % WORD_BITS
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
            count += int(np.bitwise_count(self._mask[last] & _BELOW[rest]))
        return count
