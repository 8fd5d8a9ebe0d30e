"""Writing boundary postings, which find strings with a token boundary inside. See README.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from postroom.store.search.segments.segment import ADJACENT, AFTER_SPACE, Kind, SegmentRow
from postroom.store.search.segments.snapshot import encode_mask
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
from postroom.store.search.tokens.tokenizer import Terms, TokenizedTexts, TokenRun, pack_terms

ENDINGS_PER_ROW = 128


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


def ending_rows(endings: Endings) -> Iterator[SegmentRow]:
    """Reversed terms in order, from which the rank of an ending is found."""
    texts = endings.reversed_terms
    data, starts = texts.flat.tobytes(), [*texts.starts.tolist(), len(texts.flat) - len(PADDING)]
    edges = [*endings.firsts.tolist(), len(texts)]
    is_single = (texts.lengths == endings.sizes[endings.order]).tolist()
    for first, last, shift in zip(edges, edges[1:], endings.shifts.tolist(), strict=False):
        if last - first == 1 and is_single[first]:
            continue
        for start in range(first, last, ENDINGS_PER_ROW):
            stop = min(start + ENDINGS_PER_ROW, last)
            head = (start - first).to_bytes(4, "big") + bytes([shift])
            names = data[starts[start] : starts[stop] - 1]
            key = data[starts[start] : starts[start + 1] - 1]
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
        counts = _count(key.of(_records(run, text.space_flag, 1), 0) for run in text.runs())
        records = (_records(run, text.space_flag, text.lookahead) for run in text.runs())
        for group in _partition(spill, counts, records, key, 0):
            yield from _sorted(spill, group, key)


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

    def of(self, records: U32, digit: int) -> U32:
        """One digit of each pair.

        The first is the last character before the boundary and the first bits of what follows.
        """
        if not digit:
            digits: U32 = self._characters[records[:, _LEFT]] << np.uint32(_COARSE_BITS)
            return digits | (records[:, 1] >> self._shift)
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
    is_small = group.count <= MAX_SORTED
    if is_small or group.depth == key.count:  # a large group is all equal then, and in order
        for records in _read(spill, group, key.columns):
            columns = np.ascontiguousarray(records.T)
            left, *following, docs = columns[:, key.order(columns)] if is_small else columns
            yield TokenPairs(left, tuple(following), docs)
        return
    counts = _count(key.of(records, group.depth) for records in _read(spill, group, key.columns))
    portions = _read(spill, group, key.columns)
    for subgroup in _partition(spill, counts, portions, key, group.depth):
        yield from _sorted(spill, subgroup, key)


def _count(portions: Iterable[U32]) -> Int:
    """How often each digit occurs."""
    counts = np.zeros(1, np.int64)
    for digits in portions:
        own = np.bincount(digits, minlength=len(counts))
        own[: len(counts)] += counts
        counts = own
    return counts


def _read(spill: TempFile, group: _Group, columns: int) -> Iterator[U32]:
    """The pairs of a group, in batches that fit into memory."""
    batch: list[SpilledArray] = []
    for array in group.spilled:
        if batch and sum(a.count for a in batch) + array.count > columns * MAX_SORTED:
            yield np.concatenate([spill.get(a) for a in batch]).reshape(-1, columns)
            batch = []
        batch.append(array)
    yield np.concatenate([spill.get(a) for a in batch]).reshape(-1, columns)


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


HOT_FROM = 2048
"""Bigrams of two characters with more boundaries than this have their messages cached."""


class HotBigrams:
    """Caches the messages of frequent bigrams from sorted pairs, which come in batches."""

    def __init__(self, keys: BoundaryKeys, size: int) -> None:
        self._keys = keys
        self._bigram, self._key, self._pair_count = -1, b"", 0
        self._mask = np.zeros(size, np.bool_)

    def add(self, pairs: TokenPairs, bigrams: Int) -> list[SegmentRow]:
        """Add pairs, and return the rows of bigrams that are complete."""
        edges = np.append(np.flatnonzero(is_first(bigrams)), len(bigrams))
        is_hot = np.diff(edges) > HOT_FROM
        is_hot[[0, -1]] = True
        rows: list[SegmentRow] = []
        for at in np.flatnonzero(is_hot).tolist():
            first, last = int(edges[at]), int(edges[at + 1])
            if bigrams[first] != self._bigram:
                rows += self.finish()
                key, _ = self._keys.of(pairs, edges[at : at + 1], np.array([True]))
                self._bigram, self._key = int(bigrams[first]), key[:-1]
            self._pair_count += last - first
            self._mask[pairs.docs[first:last]] = True
        return rows

    def finish(self) -> list[SegmentRow]:
        rows: list[SegmentRow] = []
        if self._pair_count > HOT_FROM:
            rows.append(SegmentRow(Kind.HOT_BIGRAM, self._key, 0, encode_mask(self._mask)))
        self._bigram, self._pair_count = -1, 0
        self._mask[:] = False
        return rows


PER_ROW = 1024
PER_GROUP = 16

HAS_RANKS, BIGRAM_ALIGNED, HAS_SIZES = 1, 2, 4
"""Flags of a row: its ranks are not all zero; no group holds two bigrams; some groups have fewer
than `PER_GROUP` entries, and the sizes follow the keys."""


def boundary_rows(text: TokenizedTexts, endings: Endings, size: int) -> Iterator[SegmentRow]:
    """All boundaries in order, of a segment with *size* messages."""
    parts = count()
    keys = BoundaryKeys(text.terms, endings, text.space_flag)
    hot = HotBigrams(keys, size)
    for pairs in sorted_token_pairs(text, endings):
        bigrams = keys.bigrams(pairs)
        groups = _group_starts(bigrams)
        starts_bigram = np.zeros(len(groups), np.bool_)
        starts_bigram[1:] = bigrams[groups[1:]] != bigrams[groups[1:] - 1]
        yield from _rows(pairs, endings, keys.of(pairs, groups, starts_bigram), groups, parts)
        yield from hot.add(pairs, bigrams)
    yield from hot.finish()


def _group_starts(bigrams: Int) -> Int:
    """A group starts with every bigram, and again after `PER_GROUP` pairs."""
    starts = np.flatnonzero(is_first(bigrams))
    offsets = np.arange(len(bigrams))
    offsets -= np.repeat(starts, np.diff(starts, append=len(bigrams)))
    return np.flatnonzero(offsets % PER_GROUP == 0)


def _rows(
    pairs: TokenPairs,
    endings: Endings,
    keys: tuple[bytes, list[int]],
    groups: Int,
    parts: Iterator[int],
) -> Iterator[SegmentRow]:
    docs = pairs.docs.astype("<u2").tobytes()
    ranks = endings.ranks[pairs.left].astype("<u2").tobytes()
    texts, ends = keys
    sizes = np.diff(groups, append=len(pairs)).astype(np.uint8).tobytes()
    edges = [*np.flatnonzero(is_first(groups // PER_ROW)).tolist(), len(groups)]
    bounds = [*groups.tolist(), len(pairs)]
    for group, after in pairwise(edges):
        first, last = 2 * bounds[group], 2 * bounds[after]
        names = texts[ends[group] : ends[after] - 1]
        key = texts[ends[group] : ends[group + 1] - 1]
        own = ranks[first:last]
        own = b"" if own.count(0) == len(own) else own
        own_sizes = sizes[group:after]
        own_sizes = b"" if own_sizes.count(PER_GROUP, 0, -1) == len(own_sizes) - 1 else own_sizes
        flags = BIGRAM_ALIGNED | (HAS_RANKS if own else 0) | (HAS_SIZES if own_sizes else 0)
        head = bytes([flags]) + len(names).to_bytes(3, "big") + names + own_sizes
        yield SegmentRow(Kind.BOUNDARY, key, next(parts), head + docs[first:last] + own)


class BoundaryKeys:
    """Keys and bigrams of token pairs."""

    def __init__(self, terms: Terms, endings: Endings, space_flag: int) -> None:
        self._terms, self._endings, self._space_flag = terms, endings, space_flag
        leads = terms.flat[terms.starts]
        self._first_sizes: Int = 1 + (leads >= 0xC0) + (leads >= 0xE0) + (leads >= 0xF0)
        """The number of bytes of the first character of each term."""
        values = masked_words(terms.flat, terms.starts, self._first_sizes)
        characters, numbers = np.unique(values, return_inverse=True)
        self._count = len(characters)
        self._numbers = np.append(numbers, 0).astype(np.uint32)

    def bigrams(self, pairs: TokenPairs) -> Int:
        """The two characters at each boundary, as one number."""
        following = pairs.following[0]
        numbers = self._numbers[(following & np.uint32(self._space_flag - 1)) - np.uint32(1)]
        numbers += np.uint32(self._count) * (following >= self._space_flag)
        bigrams: Int = self._endings.characters[pairs.left].astype(np.int64) << 32
        bigrams += numbers
        return bigrams

    def of(self, pairs: TokenPairs, groups: Int, starts_bigram: Bools) -> tuple[bytes, list[int]]:
        """The keys of groups, joined, and where each starts; one more for the end.

        A key is above everything before its group and not above what is in it. Where a bigram
        starts, the bigram is enough.
        """
        terms, endings = self._terms, self._endings
        before = np.maximum(groups - 1, 0)
        left = pairs.left[groups]
        sizes = endings.sizes[left]
        ends = terms.starts[left] + terms.lengths[left]
        pieces = [(ends - sizes, sizes, np.zeros(len(groups), np.int64))]
        same = endings.characters[left] == endings.characters[pairs.left[before]]
        for lookahead, column in enumerate(pairs.following):
            following = column[groups].astype(np.int64)
            is_used = (following > 0) & (same | (lookahead == 0))
            own = np.maximum((following & (self._space_flag - 1)) - 1, 0)
            marker = np.where(following >= self._space_flag, AFTER_SPACE[0], ADJACENT[0])
            lengths = np.where(starts_bigram, self._first_sizes[own], terms.lengths[own]) * is_used
            pieces.append((terms.starts[own], lengths, (marker + 1) * is_used))
            same &= (following == column[before]) & ~starts_bigram
        return _join_strings(terms.flat, pieces, len(groups))


def _join_strings(
    flat: U8, pieces: list[tuple[Int, Int, Int]], count: int
) -> tuple[bytes, list[int]]:
    """Each string from its pieces, an optional byte before each, and a line feed at the end."""
    total = np.ones(count, np.int64)
    for _, lengths, markers in pieces:
        total += lengths + (markers > 0)
    ends = np.cumsum(total)
    out = np.full(int(ends[-1]) if count else 0, 10, np.uint8)
    offset = ends - total
    for starts, lengths, markers in pieces:
        marked = markers > 0
        out[offset[marked]] = (markers[marked] - 1).astype(np.uint8)
        offset = offset + marked
        out[spans(offset, lengths)] = flat[spans(starts, lengths)]
        offset = offset + lengths
    return out.tobytes(), [0, *ends.tolist()]
