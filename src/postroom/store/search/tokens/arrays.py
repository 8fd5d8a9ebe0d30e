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


def words_at(flat: U8, positions: Int) -> U64:
    """The eight bytes at each position, as integers that sort like the bytes."""
    view = np.ndarray((len(flat) - _WORD + 1,), ">u8", flat.data, strides=(1,))
    return view[positions].astype(np.uint64)


def masked_words(flat: U8, positions: Int, lengths: Int) -> U64:
    """`words_at`, with zeros for all bytes beyond *lengths*."""
    unused = (_WORD - np.minimum(lengths, _WORD)).astype(np.uint64) << np.uint64(3)
    words = words_at(flat, positions)
    words >>= unused
    words <<= unused
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
    order = (packed & np.uint64((1 << bits) - 1)).astype(np.int64)
    packed >>= np.uint64(bits)
    return packed, order


def number_strings(flat: U8, starts: Int, lengths: Int) -> tuple[U32, Int]:
    """Number distinct strings: the number of each string, and the first string of each number.

    Strings of different lengths are distinct, so they are numbered by length class.
    """
    numbers, firsts, count = np.empty(len(starts), np.uint32), [], 0
    shares = np.minimum(lengths, _WORD + 1)
    for low, high, number in ((0, 2, _number_short), (3, _WORD, _number), (9, 9, _number)):
        chosen = np.flatnonzero((shares >= low) & (shares <= high))
        own, first = number(flat, starts.take(chosen), lengths.take(chosen))
        own += np.uint32(count)
        numbers[chosen] = own
        firsts.append(chosen.take(first))
        count += len(first)
    return numbers, np.concatenate(firsts)


def _number_short(flat: U8, starts: Int, lengths: Int) -> tuple[U32, Int]:
    """`number_strings` for at most two bytes: a table holds all possible strings."""
    keys = (masked_words(flat, starts, lengths) >> np.uint64(48)).astype(np.int64) * 3 + lengths
    firsts = np.full(3 << 16, -1)
    firsts[keys[::-1]] = np.arange(len(keys))[::-1]
    are_there = firsts >= 0
    numbers = np.cumsum(are_there, dtype=np.uint32) - np.uint32(1)
    return numbers.take(keys), firsts.compress(are_there)


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
    factor = np.uint64((0x9E3779B97F4A7C15 * (2 * salt + 1)) & 0xFFFFFFFFFFFFFFFF)
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
