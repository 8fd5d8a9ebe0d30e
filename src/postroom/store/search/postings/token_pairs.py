"""Pairs of adjacent tokens, sorted by the end of the first and by what follows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from postroom.store.search.tokens.arrays import (
    PADDING,
    U8,
    U16,
    U32,
    U64,
    Int,
    SpilledArray,
    TempFile,
    are_tied,
    is_first,
    masked_words,
    sort_packed,
    sort_strings,
)
from postroom.store.search.tokens.tokenizer import Terms, TokenizedTexts, TokenRun, pack_terms

_Value = TypeVar("_Value", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Endings:
    """The last character of each term, and the rank of the term among those that share it."""

    characters: U16
    sizes: Int
    ranks: U16
    order: Int
    """All terms, sorted by their reversed text."""
    reversed_terms: Terms
    """The reversed texts in that order."""
    firsts: Int
    """Where each last character starts in that order."""
    shifts: Int
    """By last character, the low bits of ranks that are dropped to fit into two bytes."""


def find_endings(terms: Terms) -> Endings:
    """Rank terms by their reversed text."""
    ends = terms.starts + terms.lengths
    reversed_text = np.append(terms.flat[::-1], np.zeros(len(PADDING), np.uint8))
    starts = len(terms.flat) - ends
    order = sort_strings(reversed_text, starts, terms.lengths)
    reversed_terms = pack_terms(reversed_text, starts[order], terms.lengths[order])
    sizes = _last_character(terms.flat, ends)
    values = masked_words(terms.flat, ends - sizes, sizes)
    _, characters = np.unique(values, return_inverse=True)
    firsts = np.flatnonzero(is_first(characters[order]))
    counts = np.diff(np.append(firsts, len(order)))
    shifts = np.maximum(np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64) - 16, 0)
    ranks = np.empty(len(order), np.uint16)
    ranks_by_order = np.arange(len(order)) - np.repeat(firsts, counts)
    ranks[order] = ranks_by_order >> np.repeat(shifts, counts)
    return Endings(
        characters.astype(np.uint16), sizes, ranks, order, reversed_terms, firsts, shifts
    )


def _last_character(flat: U8, ends: Int) -> Int:
    """The number of bytes of the character before each end."""
    sizes = np.ones(len(ends), np.int64)
    for _ in range(3):
        sizes += (flat[ends - sizes] & 0xC0) == 0x80
    return sizes


MAX_SORTED = 1 << 17
"""How many pairs are sorted at once."""

_COARSE_BITS = 8
_DIGIT_BITS = 12
_LEFT = 0
_RANK_BITS = np.uint32(16)

Tokens = NDArray[np.unsignedinteger]
"""Elements of `TokenRun.sequence`, doc ids, or endings (see `_endings_by_token`)."""


class _Source(Protocol):
    """Where pairs are read from; a record of *width* integers stands for each."""

    width: int

    def portions(self, lookahead: int) -> Iterator[tuple[U32, U32, U32]]:
        """All pairs in order of arrival: records with at least so many tokens, endings, tokens."""
        ...

    def windows(self, records: U32) -> tuple[U32, Tokens]:
        """A row with the ending before each boundary and the tokens after it, and the doc ids."""
        ...


class _Positions:
    """Texts that are in memory: a record is the position of the token before a boundary."""

    width = 1

    def __init__(self, text: TokenizedTexts, whole: TokenRun, endings: U32) -> None:
        self._text, self._whole, self._endings = text, whole, endings

    def portions(self, lookahead: int) -> Iterator[tuple[U32, U32, U32]]:
        first = 0
        for run in self._text.runs():
            positions, endings, following = _boundaries(run, self._endings)
            yield (positions + first).astype(np.uint32)[:, None], endings, following
            first += len(run.sequence)

    def windows(self, records: U32) -> tuple[U32, Tokens]:
        positions, sequence = records[:, 0].astype(np.int64), self._whole.sequence
        # Read at once, because most of the time goes to fetching each place from memory.
        size = self._text.lookahead + 1
        overlapping = np.ndarray(
            (len(sequence) - size + 1,), f"V{4 * size}", sequence, strides=(4,)
        )
        windows = overlapping[positions].view(np.uint32).reshape(-1, size)
        windows[:, _LEFT] = self._endings.take(windows[:, _LEFT])
        return windows, self._whole.docs.take(positions)


class _Windows:
    """Texts that are too large for memory: a record holds ending, tokens and doc id of a pair."""

    def __init__(self, text: TokenizedTexts, endings: U32) -> None:
        self._text, self._endings, self.width = text, endings, text.lookahead + 2

    def portions(self, lookahead: int) -> Iterator[tuple[U32, U32, U32]]:
        for run in self._text.runs():
            positions, endings, following = _boundaries(run, self._endings)
            records = np.empty((len(positions), lookahead + 2), np.uint32)
            records[:, _LEFT], records[:, 1] = endings, following
            for column in range(2, lookahead + 1):
                records[:, column] = run.sequence.take(positions + column)
            records[:, -1] = run.docs.take(positions)
            yield records, endings, following

    def windows(self, records: U32) -> tuple[U32, Tokens]:
        return records, records[:, -1]


def _boundaries(run: TokenRun, endings: U32) -> tuple[Int, U32, U32]:
    """The positions of all tokens that another follows, their endings, and the following tokens."""
    is_token = run.sequence != 0
    positions = np.flatnonzero(is_token[:-1] & is_token[1:])
    left, following = run.sequence.take(positions), run.sequence[1:].take(positions)
    return positions, endings.take(left), following


class _Columns:
    """The columns of some pairs: endings, the tokens after them one by one, and doc ids."""

    def __init__(self, source: _Source, records: U32) -> None:
        self._windows, self.docs = source.windows(records)
        self._known: dict[int, U32] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, position: int) -> U32:
        if position not in self._known:
            self._known[position] = np.ascontiguousarray(self._windows[:, position])
        return self._known[position]


@dataclass(frozen=True, slots=True)
class TokenPairs:
    """Adjacent tokens in order: the ending before the boundary, what follows, and the message."""

    _columns: _Columns
    _order: Int

    def __len__(self) -> int:
        return len(self._columns)

    def endings(self) -> tuple[U32, U16]:
        """The last character before each boundary, and the rank of the token that it ends."""
        endings: U32 = self._columns[_LEFT].take(self._order)
        return endings >> _RANK_BITS, endings.astype(np.uint16)

    def tokens(self, position: int, at: Int | slice = slice(None)) -> U32:
        """The tokens so many positions after those before the boundaries; of some pairs only."""
        order = self._order if isinstance(at, slice) else self._order.take(at)
        return self._columns[position].take(order)

    def docs(self) -> Tokens:
        return self._columns.docs.take(self._order)


@dataclass(slots=True)
class _Group:
    """Spilled pairs that precede those of the next group; they share *depth* digits if too many."""

    spilled: list[SpilledArray]
    count: int
    depth: int


def sorted_token_pairs(text: TokenizedTexts, endings: Endings) -> Iterator[TokenPairs]:
    """All pairs, sorted by the last character before the boundary and by what follows."""
    table = _endings_by_token(endings, text.space_flag)
    source: _Source = (
        _Windows(text, table) if text.whole is None else _Positions(text, text.whole, table)
    )
    key = _SortKey(text.space_flag, text.lookahead)
    with closing(TempFile()) as spill:
        counts = _count(key.first_digit(*pairs[1:]) for pairs in source.portions(1))
        portions = ((r, key.first_digit(*pair)) for r, *pair in source.portions(text.lookahead))
        for group in _partition(spill, source, counts, portions, 1):
            yield from _sorted(spill, source, group, key)


def _endings_by_token(endings: Endings, space_flag: int) -> U32:
    """The last character and, below it, the rank of each token of `TokenRun.sequence`."""
    values = endings.characters.astype(np.uint32) << _RANK_BITS
    return by_token(values | endings.ranks, space_flag)


def by_token(values: NDArray[_Value], space_flag: int) -> NDArray[_Value]:
    """A table with the value of each term, to be looked up by elements of `TokenRun.sequence`."""
    table = np.zeros(2 * space_flag, values.dtype)
    for first in (1, space_flag + 1):
        table[first : first + len(values)] = values
    return table


class _SortKey:
    """The sort key of pairs as a sequence of digits."""

    def __init__(self, space_flag: int, lookahead: int) -> None:
        self._lookahead = lookahead
        self._shift = np.uint32(max(space_flag.bit_length() - _COARSE_BITS, 0))
        self._bits = np.uint64(space_flag.bit_length())
        self.count = 1 + 2 * lookahead

    def first_digit(self, endings: U32, following: U32) -> U32:
        """The last character before each boundary, and the first bits of what follows."""
        digits: U32 = endings >> _RANK_BITS
        digits <<= np.uint32(_COARSE_BITS)
        digits |= following >> self._shift
        return digits

    def digit(self, columns: _Columns, digit: int) -> U32:
        """One of the digits after the first."""
        column: U32 = columns[(digit + 1) // 2]
        if digit % 2:
            return column >> np.uint32(_DIGIT_BITS)
        return column & np.uint32((1 << _DIGIT_BITS) - 1)

    def order(self, columns: _Columns) -> Int:
        """The sort order of pairs in memory, by as many columns at a time as fit into 64 bits."""
        values = (columns[_LEFT] >> _RANK_BITS).astype(np.uint64)
        values <<= self._bits
        values |= columns[1]
        values -= values.min()
        lookahead = 2 + self._columns_that_fit(values, int(values.max()), 2)
        for position in range(2, lookahead):
            values <<= self._bits
            values |= columns[position]
        ordered, order = sort_packed(values)
        is_tied = are_tied(first := is_first(ordered))
        tied = np.flatnonzero(is_tied)
        while len(tied) and lookahead <= self._lookahead:
            values = np.cumsum(first.compress(is_tied), dtype=np.uint64)
            own, start = order.take(tied), lookahead
            lookahead += max(1, self._columns_that_fit(values, int(values[-1]), lookahead))
            for position in range(start, lookahead):
                values <<= self._bits
                values |= columns[position].take(own)
            ordered, reordered = sort_packed(values)
            order[tied] = own.take(reordered)
            is_tied = are_tied(first := is_first(ordered))
            tied = tied.compress(is_tied)
        return order

    def _columns_that_fit(self, values: U64, largest: int, lookahead: int) -> int:
        """How many columns from *lookahead* on fit into 64 bits with a value and its index."""
        bits_left = 64 - largest.bit_length() - len(values).bit_length()
        return min(bits_left // int(self._bits), self._lookahead + 1 - lookahead)


def _sorted(spill: TempFile, source: _Source, group: _Group, key: _SortKey) -> Iterator[TokenPairs]:
    """The pairs of one group in order, in batches."""
    is_small = group.count <= MAX_SORTED
    if is_small or group.depth == key.count:  # a large group is all equal then, and in order
        for records in _read(spill, group, source.width):
            columns = _Columns(source, records)
            yield TokenPairs(columns, key.order(columns) if is_small else np.arange(len(records)))
        return

    def portions() -> Iterator[tuple[U32, U32]]:
        for records in _read(spill, group, source.width):
            yield records, key.digit(_Columns(source, records), group.depth)

    counts = _count(digits for _, digits in portions())
    for subgroup in _partition(spill, source, counts, portions(), group.depth + 1):
        yield from _sorted(spill, source, subgroup, key)


def _count(portions: Iterable[U32]) -> Int:
    """How often each digit occurs."""
    counts = np.zeros(1, np.int64)
    for digits in portions:
        own = np.bincount(digits, minlength=len(counts))
        own[: len(counts)] += counts
        counts = own
    return counts


def _read(spill: TempFile, group: _Group, width: int) -> Iterator[U32]:
    """The pairs of a group, in batches that fit into memory."""
    batch: list[SpilledArray] = []
    for array in group.spilled:
        if batch and sum(a.count for a in batch) + array.count > width * MAX_SORTED:
            yield np.concatenate([spill.get(a) for a in batch]).reshape(-1, width)
            batch = []
        batch.append(array)
    yield np.concatenate([spill.get(a) for a in batch]).reshape(-1, width)


def _partition(
    spill: TempFile,
    source: _Source,
    counts: Int,
    portions: Iterable[tuple[U32, U32]],
    depth: int,
) -> list[_Group]:
    """Spill pairs in groups by one digit; a group that is too large holds a single digit."""
    edges = _edges(counts)
    groups = [_Group([], 0, depth) for _ in edges[1:]]
    group_of = np.repeat(np.arange(len(groups), dtype=np.uint16), np.diff(edges))
    for records, digits in portions:
        groups_of_records = group_of.take(digits)
        order = np.argsort(groups_of_records, kind="stable")
        spilled = spill.put(records.take(order, axis=0))
        ends = np.cumsum(np.bincount(groups_of_records, minlength=len(groups))).tolist()
        for group, first, last in zip(groups, [0, *ends], ends, strict=False):
            if last > first:
                group.spilled.append(spilled.part(source.width * first, source.width * last))
                group.count += last - first
    return [group for group in groups if group.count]


def _edges(counts: Int) -> list[int]:
    """The digits at which a new group starts."""
    edges, size = [0], 0
    for digit in np.flatnonzero(counts).tolist():
        size += int(counts[digit])
        if size > MAX_SORTED:
            if digit > edges[-1]:
                edges.append(digit)
            size = int(counts[digit])
    return [*edges, len(counts)]
