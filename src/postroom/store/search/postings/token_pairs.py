"""Token pairs: all adjacent tokens of a segment, sorted in bounded memory.

There are too many to sort at once. They are spilled in groups that follow each other, by the last
character before the boundary and the first bits of what follows; a group that is still too large is
split by one following token after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from postroom.store.search.segments.segment import Kind, SegmentRow
from postroom.store.search.tokens.arrays import (
    PADDING,
    U8,
    U16,
    U32,
    U64,
    Bools,
    Int,
    SpilledArray,
    TempFile,
    is_first,
    masked_words,
    sort_packed,
    sort_strings,
    spans,
)
from postroom.store.search.tokens.dictionary import Terms
from postroom.store.search.tokens.tokenizer import TokenizedTexts, TokenRun

ENDINGS_PER_ROW = 128


@dataclass(frozen=True, slots=True)
class Endings:
    """The last character of each term, and the rank of the term among those that share it."""

    characters: U16
    sizes: Int
    ranks: U16
    order: Int
    """All terms, sorted by their reversed text."""
    firsts: Int
    """Where each last character starts in that order."""
    shifts: Int
    """By last character, the low bits of ranks that are dropped to fit into two bytes."""


def find_endings(terms: Terms) -> Endings:
    """Rank terms by their reversed text."""
    ends = terms.starts + terms.lengths
    reversed_text = np.append(terms.flat[::-1], np.zeros(len(PADDING), np.uint8))
    order = sort_strings(reversed_text, len(terms.flat) - ends, terms.lengths)
    sizes = _last_character(terms.flat, ends)
    values = masked_words(terms.flat, ends - sizes, sizes)
    _, characters = np.unique(values, return_inverse=True)
    firsts = np.flatnonzero(is_first(characters[order]))
    counts = np.diff(np.append(firsts, len(order)))
    shifts = np.maximum(np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64) - 16, 0)
    ranks = np.empty(len(order), np.uint16)
    ranks_by_order = np.arange(len(order)) - np.repeat(firsts, counts)
    ranks[order] = ranks_by_order >> np.repeat(shifts, counts)
    return Endings(characters.astype(np.uint16), sizes, ranks, order, firsts, shifts)


def _last_character(flat: U8, ends: Int) -> Int:
    """The number of bytes of the character before each end."""
    sizes = np.ones(len(ends), np.int64)
    for _ in range(3):
        sizes += (flat[ends - sizes] & 0xC0) == 0x80
    return sizes


def ending_rows(terms: Terms, endings: Endings) -> Iterator[SegmentRow]:
    """Reversed terms in order, from which the rank of an ending is found."""
    lengths = terms.lengths[endings.order]
    after = (terms.starts + terms.lengths)[endings.order]
    ends = np.cumsum(lengths + 1)
    texts = np.full(int(ends[-1]) if len(ends) else 0, 10, np.uint8)
    reversed_text = np.repeat(after + ends - lengths - 2, lengths) - spans(
        ends - lengths - 1, lengths
    )
    texts[spans(ends - lengths - 1, lengths)] = terms.flat[reversed_text]
    data, offsets = texts.tobytes(), [0, *ends.tolist()]
    edges = [*endings.firsts.tolist(), len(lengths)]
    is_single = (lengths == endings.sizes[endings.order]).tolist()
    for first, last, shift in zip(edges, edges[1:], endings.shifts.tolist(), strict=False):
        if last - first == 1 and is_single[first]:
            continue
        for start in range(first, last, ENDINGS_PER_ROW):
            stop = min(start + ENDINGS_PER_ROW, last)
            head = (start - first).to_bytes(4, "big") + bytes([shift])
            names = data[offsets[start] : offsets[stop] - 1]
            key = data[offsets[start] : offsets[start + 1] - 1]
            yield SegmentRow(Kind.ENDING, key, 0, head + names)


MAX_SORTED = 1 << 17
"""How many pairs are sorted at once."""

_COARSE_BITS = 8
_DIGIT_BITS = 12
_LEFT, _DOC = 0, -1


@dataclass(frozen=True, slots=True)
class TokenPairs:
    """Adjacent tokens: the term before the boundary, what follows it, and the message."""

    left: U32
    following: tuple[U32, ...]
    """The following tokens as in `TokenRun.sequence`, one array for each position."""
    docs: U32

    def __len__(self) -> int:
        return len(self.left)


@dataclass(slots=True)
class _Group:
    """Spilled pairs that precede those of the next group; they share *depth* digits if too many."""

    spilled: list[SpilledArray]
    count: int
    depth: int


def sorted_token_pairs(text: TokenizedTexts, endings: Endings) -> Iterator[TokenPairs]:
    """All pairs, sorted by the last character before the boundary and by what follows."""
    key = _SortKey(text.space_flag, text.lookahead, endings)
    with closing(TempFile()) as spill:
        counts = _count(key.first(*_adjacent(run, text.space_flag)) for run in text.runs())
        records = (_records(run, text.space_flag, text.lookahead) for run in text.runs())
        for group in _partition(spill, counts, records, key, 0):
            yield from _sorted(spill, group, key)


def _adjacent(run: TokenRun, space_flag: int) -> tuple[U32, U32]:
    """The term before each boundary of a run, and the first token after it."""
    sequence = run.sequence
    is_pair = (sequence[:-1] != 0) & (sequence[1:] != 0)
    return (sequence[:-1][is_pair] & np.uint32(space_flag - 1)) - np.uint32(1), sequence[1:][
        is_pair
    ]


def _records(run: TokenRun, space_flag: int, lookahead: int) -> U32:
    """The pairs of a run, one per row: term, following tokens, doc id."""
    sequence = run.sequence
    positions = np.flatnonzero((sequence[:-1] != 0) & (sequence[1:] != 0))
    records = np.empty((len(positions), lookahead + 2), np.uint32)
    records[:, _LEFT] = (sequence[positions] & np.uint32(space_flag - 1)) - np.uint32(1)
    for column in range(1, lookahead + 1):
        records[:, column] = sequence[positions + column]
    records[:, _DOC] = run.docs[positions]
    return records


class _SortKey:
    """The sort key of pairs as a sequence of digits."""

    def __init__(self, space_flag: int, lookahead: int, endings: Endings) -> None:
        self._lookahead = lookahead
        self.columns = lookahead + 2
        self._characters = endings.characters.astype(np.uint32)
        self._shift = np.uint32(max(space_flag.bit_length() - _COARSE_BITS, 0))
        self._bits = np.uint64(space_flag.bit_length())
        self.count = 1 + 2 * lookahead

    def first(self, left: U32, following: U32) -> U32:
        """The last character before the boundary, and the first bits of what follows."""
        digits: U32 = self._characters[left] << np.uint32(_COARSE_BITS)
        digits |= following >> self._shift
        return digits

    def of(self, records: U32, digit: int) -> U32:
        """One digit of each pair."""
        if not digit:
            return self.first(records[:, _LEFT], records[:, 1])
        column = records[:, (digit + 1) // 2]
        if digit % 2:
            return column >> np.uint32(_DIGIT_BITS)
        return column & np.uint32((1 << _DIGIT_BITS) - 1)

    def order(self, columns: U32) -> Int:
        """The sort order of pairs in memory, by as many columns at a time as fit into 64 bits."""
        values = self._characters[columns[_LEFT]].astype(np.uint64)
        values -= values.min()
        lookahead = 1 + self._columns_that_fit(values, int(values.max()), 1)
        for column in columns[1:lookahead]:
            values = (values << self._bits) | column
        ordered, order = sort_packed(values)
        is_tied = _are_tied(first := is_first(ordered))
        tied = np.flatnonzero(is_tied)
        while len(tied) and lookahead <= self._lookahead:
            values = np.cumsum(first[is_tied]).astype(np.uint64)
            own, start = order[tied], lookahead
            lookahead += self._columns_that_fit(values, int(values[-1]), lookahead)
            for column in columns[start:lookahead]:
                values = (values << self._bits) | column[own]
            ordered, reordered = sort_packed(values)
            order[tied] = own[reordered]
            is_tied = _are_tied(first := is_first(ordered))
            tied = tied[is_tied]
        return order

    def _columns_that_fit(self, values: U64, largest: int, lookahead: int) -> int:
        """How many columns from *lookahead* on fit into 64 bits with a value and its index."""
        bits_left = 64 - largest.bit_length() - len(values).bit_length()
        return max(1, min(bits_left // int(self._bits), self._lookahead + 1 - lookahead))


def _are_tied(first: Bools) -> Bools:
    """Which elements of a sorted array have an equal neighbour."""
    alone: Bools = first & np.append(first[1:], True)
    return ~alone


def _sorted(spill: TempFile, group: _Group, key: _SortKey) -> Iterator[TokenPairs]:
    """The pairs of one group in order, in batches."""
    if group.count <= MAX_SORTED:
        (records,) = _read(spill, group, key.columns)
        columns = np.ascontiguousarray(records.T)
        yield _token_pairs(columns[:, key.order(columns)])
    elif group.depth == key.count:  # all equal, and already in order
        for records in _read(spill, group, key.columns):
            yield _token_pairs(np.ascontiguousarray(records.T))
    else:
        portions = _read(spill, group, key.columns)
        counts = _count(key.of(records, group.depth) for records in portions)
        portions = _read(spill, group, key.columns)
        for subgroup in _partition(spill, counts, portions, key, group.depth):
            yield from _sorted(spill, subgroup, key)


def _token_pairs(columns: U32) -> TokenPairs:
    left, *following, docs = columns
    return TokenPairs(left, tuple(following), docs)


def _count(portions: Iterable[U32]) -> Int:
    """How often each digit occurs."""
    counts = np.zeros(1, np.int64)
    for digits in portions:
        own = np.bincount(digits, minlength=len(counts))
        own[: len(counts)] += counts
        counts = own
    return counts


def _portions(spilled: Sequence[SpilledArray], columns: int) -> Iterator[list[SpilledArray]]:
    """Batches that fit into memory."""
    portion: list[SpilledArray] = []
    for array in spilled:
        if portion and sum(a.count for a in portion) + array.count > columns * MAX_SORTED:
            yield portion
            portion = []
        portion.append(array)
    yield portion


def _read(spill: TempFile, group: _Group, columns: int) -> Iterator[U32]:
    for spilled in _portions(group.spilled, columns):
        yield np.concatenate([spill.get(a) for a in spilled]).reshape(-1, columns)


def _partition(
    spill: TempFile, counts: Int, portions: Iterable[U32], key: _SortKey, digit: int
) -> list[_Group]:
    """Spill pairs in groups by one digit; a group that is too large holds a single digit."""
    edges = _edges(counts)
    groups = [_Group([], 0, digit + 1) for _ in edges[1:]]
    group_of = np.repeat(np.arange(len(groups), dtype=np.uint16), np.diff(edges))
    for records in portions:
        groups_of_records = group_of[key.of(records, digit)]
        spilled = spill.put(records[np.argsort(groups_of_records, kind="stable")])
        ends = np.cumsum(np.bincount(groups_of_records, minlength=len(groups))).tolist()
        for group, first, last in zip(groups, [0, *ends], ends, strict=False):
            if last > first:
                group.spilled.append(spilled.part(key.columns * first, key.columns * last))
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
