"""Arrays of numbers and strings, in memory or spilled to a temporary file."""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from postroom.errors import StorageFull

U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Int = NDArray[np.int64]
Bools = NDArray[np.bool_]

_WORD = 8
PADDING = b"\n" * _WORD
"""Appended to every flat text, so that eight bytes can be read at any position."""


_USED: U64 = ~(np.uint64(2**64 - 1) >> np.arange(0, 72, 8, dtype=np.uint64))
"""By length, all bits of the bytes that belong to a string."""


def words_at(flat: U8, positions: Int) -> U64:
    """The eight bytes at each position, as integers that sort like the bytes."""
    view = np.ndarray((len(flat) - _WORD + 1,), ">u8", flat.data, strides=(1,))
    return view[positions].astype(np.uint64)


def masked_words(flat: U8, positions: Int, lengths: Int) -> U64:
    """`words_at`, with zeros for all bytes beyond *lengths*."""
    words = words_at(flat, positions)
    words &= _USED.take(np.minimum(lengths, _WORD))
    return words


def is_first(values: NDArray[np.generic]) -> Bools:
    """Which elements differ from the element before; the first one does."""
    first = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


def are_tied(first: Bools) -> Bools:
    """Which elements of a sorted array have an equal neighbour, by `is_first`."""
    tied = ~first
    tied[:-1] |= tied[1:]
    return tied


def spans(starts: Int, lengths: Int) -> Int:
    """The positions of all spans, one span after the other."""
    used = np.flatnonzero(lengths)
    if len(used) < len(lengths):
        starts, lengths = starts.take(used), lengths.take(used)
    if not len(used):
        return np.empty(0, np.int64)
    ends = np.cumsum(lengths)
    steps = np.ones(int(ends[-1]), np.int64)
    steps[0] = starts[0]
    steps[ends[:-1]] = starts[1:] - starts[:-1] - lengths[:-1] + 1
    return np.cumsum(steps, out=steps)


def sort_strings(flat: U8, starts: Int, lengths: Int) -> Int:
    """The stable sort order of strings in *flat* by their bytes.

    Strings are sorted by as many bytes as fit into an integer beside their index; those that are
    still equal and not at their end are sorted again by the following bytes.
    """
    order = np.arange(len(starts))
    tied, runs, run_count, depth = order.copy(), np.zeros(len(starts), np.uint64), 1, 0
    while len(tied) > 1:
        indexes = order[tied]
        words = masked_words(flat, starts.take(indexes) + depth, lengths.take(indexes) - depth)
        index_bits, run_bits = len(tied).bit_length(), run_count.bit_length()
        used_bytes = (64 - index_bits - run_bits) // 8
        words >>= np.uint64(64 - 8 * used_bytes)
        words |= runs << np.uint64(8 * used_bytes)
        packed, sorted_indexes = sort_packed(words)
        indexes = indexes.take(sorted_indexes)
        order[tied] = indexes
        depth += used_bytes
        first = is_first(packed)
        is_tied = are_tied(first)
        is_tied &= lengths.take(indexes) >= depth
        runs = np.cumsum(first).compress(is_tied)
        runs = np.cumsum(is_first(runs), dtype=np.uint64)
        tied, run_count = tied.compress(is_tied), int(runs[-1]) if len(runs) else 0
    return order


def sort_packed(values: U64) -> tuple[U64, Int]:
    """The sorted values and their original indexes; the sort is stable.

    Much faster than `argsort`, but a value and its index must fit into 64 bits together.
    """
    bits = len(values).bit_length()
    packed = values << np.uint64(bits)
    packed |= np.arange(len(values), dtype=np.uint64)
    packed.sort()
    order = (packed & np.uint64((1 << bits) - 1)).view(np.int64)
    packed >>= np.uint64(bits)
    return packed, order


_FACTOR = 0x9E3779B97F4A7C15
_MAX_SLOT_BITS = 17
_LONG = np.uint64(0xFF << 56)
"""The word of no short string."""


def number_strings(flat: U8, starts: Int, lengths: Int) -> tuple[U32, Int]:
    """Number distinct strings: the number of each string, and one string of each number.

    A short string whose word is the last in its slot of a hash table is numbered by the slot.
    """
    words = words_at(flat, starts)
    words |= ~_USED.take(np.minimum(lengths, _WORD))  # no byte of UTF-8 has all bits set
    is_long = lengths > _WORD
    words[is_long] = _LONG
    slot_bits = min(len(starts).bit_length(), _MAX_SLOT_BITS)
    slots = ((words * np.uint64(_FACTOR)) >> np.uint64(64 - slot_bits)).view(np.int64)
    lasts = np.empty(1 << slot_bits, np.int32)
    lasts[slots] = np.arange(len(starts), dtype=np.int32)
    by_slot = words.take(lasts.take(slots)) == words
    by_slot &= ~is_long
    is_used = np.zeros(1 << slot_bits, np.bool_)
    is_used[slots.compress(by_slot)] = True
    numbers = (np.cumsum(is_used, dtype=np.uint32) - np.uint32(1)).take(slots)
    firsts, others = lasts.compress(is_used), np.flatnonzero(~by_slot)
    own, own_firsts = _number(flat, starts.take(others), lengths.take(others))
    numbers[others] = own + np.uint32(len(firsts))
    return numbers, np.concatenate((firsts, others.take(own_firsts)))


def hash_strings(flat: U8, starts: Int, lengths: Int) -> U64:
    """A 64-bit hash of each string."""
    return _hashes(_all_words(flat, starts, lengths), lengths, 1)


def _number(flat: U8, starts: Int, lengths: Int) -> tuple[U32, Int]:
    words = _all_words(flat, starts, lengths)
    for salt in range(1, 100):
        hashes = _hashes(words, lengths, salt)
        ordered, order = sort_packed(hashes >> np.uint64(len(starts).bit_length()))
        first = is_first(ordered)
        if _are_equal(words, lengths, order, first):
            numbers = np.empty(len(order), np.uint32)
            numbers[order] = np.cumsum(first, dtype=np.uint32) - np.uint32(1)
            return numbers, order.compress(first)
    raise RuntimeError("no hash function separates these strings")


def _all_words(flat: U8, starts: Int, lengths: Int) -> list[tuple[Int | None, U64]]:
    """All strings in steps of eight bytes: which strings are that long, and their bytes."""
    words: list[tuple[Int | None, U64]] = [(None, masked_words(flat, starts, lengths))]
    longer, depth = np.flatnonzero(lengths > _WORD), _WORD
    while len(longer):
        word = masked_words(flat, starts.take(longer) + depth, lengths.take(longer) - depth)
        words.append((longer, word))
        depth += _WORD
        longer = longer.compress(lengths.take(longer) > depth)
    return words


def _hashes(words: list[tuple[Int | None, U64]], lengths: Int, salt: int) -> U64:
    factor = np.uint64(_FACTOR * (2 * salt + 1) & 0xFFFFFFFFFFFFFFFF)
    hashes = words[0][1] * factor
    hashes ^= hashes >> np.uint64(32)
    for longer, word in words[1:]:
        mixed = (hashes[longer] + word) * factor
        hashes[longer] = mixed ^ (mixed >> np.uint64(32))
    hashes += lengths.astype(np.uint64)
    hashes *= factor
    return hashes


def _are_equal(words: list[tuple[Int | None, U64]], lengths: Int, order: Int, first: Bools) -> bool:
    """Whether neighbours in *order* that share a hash are equal in all bytes."""
    same = ~first[1:]
    for longer, word in [(None, lengths.astype(np.uint64)), *words]:
        values = word
        if longer is not None:
            values = np.zeros(len(order), np.uint64)
            values[longer] = word
        ordered = values.take(order)
        if (same & (ordered[1:] != ordered[:-1])).any():
            return False
    return True


_MAX_IN_MEMORY = 4 << 20


@dataclass(frozen=True, slots=True)
class SpilledArray:
    """The position of an array of 32-bit integers in a temporary file."""

    at: int
    count: int

    def part(self, first: int, last: int) -> SpilledArray:
        return SpilledArray(self.at + 4 * first, last - first)


class TempFile:
    """An unnamed temporary file, deleted when it is closed; small content stays in memory."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - see close
            _MAX_IN_MEMORY, dir=_temp_folder()
        )

    def close(self) -> None:
        self._file.close()

    def put(self, values: U32) -> SpilledArray:
        """Append an array. Raises StorageFull."""
        try:
            at = self._file.seek(0, 2)
            self._file.write(np.ascontiguousarray(values).tobytes())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise StorageFull(
                f"no space in {_temp_folder()} to merge the search index; free some, or name "
                "another folder in TMPDIR"
            ) from error
        return SpilledArray(at, values.size)

    def get(self, spilled: SpilledArray) -> U32:
        self._file.seek(spilled.at)
        return np.frombuffer(self._file.read(4 * spilled.count), np.uint32)


def _temp_folder() -> str:
    """`/var/tmp` instead of `/tmp`, which is often held in memory."""
    usual, large = tempfile.gettempdir(), "/var/tmp"  # noqa: S108 - the file has no name there
    return large if usual == "/tmp" and os.access(large, os.W_OK | os.X_OK) else usual  # noqa: S108
