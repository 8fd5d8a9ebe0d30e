"""Which messages have a token that contains a string: the rows that tell, and how they are made.

All suffixes of all terms are kept in order, so the terms that contain a string are neighbours.
Where they are many, the set of their messages is kept ready.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from postroom.store.search.arrays import (
    U8,
    U16,
    U32,
    Bools,
    Int,
    is_first,
    sort_strings,
    spans,
)
from postroom.store.search.kinds import Kind, SegmentRow
from postroom.store.search.rows import encode_mask, encode_places
from postroom.store.search.tokens import BORDER, Tokenised, Vocabulary

PER_ROW = 128
_ROWS_AT_ONCE = 2_000
KEY_BYTES = 16

ALONE, LARGE = 1 << 31, 1 << 30
"""A reference with the first is the one message that has the term; with the second it is the
term itself, whose messages have a row of their own. Any other is a place among those of terms
with few messages, which lie end to end, each set after its size."""

FEW = 128
SHORTS_PER_ROW = 2_000
"""Two bytes each: they fit on one page."""

_AT_ONCE = 1 << 21


def ready_from(count: int) -> int:
    """Strings that more suffixes begin with have their messages ready in a segment.

    In a small segment it is cheaper to follow them all.
    """
    return 64 if count >= 1 << 15 else 128 if count >= 1 << 11 else 512


@dataclass(frozen=True, slots=True)
class Postings:
    """The messages of each term: `docs` from `starts` on, `counts` of them."""

    starts: Int
    counts: Int
    docs: U16

    def of(self, term: int) -> U16:
        """The messages of one term."""
        start = self.starts[term]
        return self.docs[start : start + self.counts[term]]


def find_postings(text: Tokenised) -> Postings:
    """Which messages have which terms; those of a term in the order of their texts."""
    parts = [_pairs(text, at) for at in range(0, len(text.docs), _AT_ONCE)]
    counts = np.zeros(len(text.terms), np.int64)
    for terms, _ in parts:
        counts += np.bincount(terms, minlength=len(counts))
    starts = np.cumsum(counts) - counts
    docs = np.empty(int(counts.sum()), np.uint16)
    free = starts.copy()
    for terms, own in parts:
        firsts = np.flatnonzero(is_first(terms))
        sizes = np.diff(np.append(firsts, len(terms)))
        docs[spans(free[terms[firsts]], sizes)] = own
        free[terms[firsts]] += sizes
    return Postings(starts, counts, docs)


def _pairs(text: Tokenised, at: int) -> tuple[U32, U16]:
    """Each term of a part of the sequence with each message that has it, by term."""
    sequence = text.sequence[at : at + _AT_ONCE]
    is_token = sequence != 0
    pairs = (sequence[is_token] & np.uint32(text.gap - 1)).astype(np.uint64)
    pairs <<= np.uint64(16)
    pairs |= text.docs[at : at + _AT_ONCE][is_token]
    pairs.sort()
    pairs = pairs[is_first(pairs)]
    return (pairs >> np.uint64(16)).astype(np.uint32) - np.uint32(1), pairs.astype(np.uint16)


def word_rows(terms: Vocabulary, postings: Postings, count: int) -> Iterator[SegmentRow]:
    """All rows about words of a segment that holds *count* messages."""
    references, shorts = _lay_out(postings)
    for part, first in enumerate(range(0, len(shorts), SHORTS_PER_ROW)):
        value = shorts[first : first + SHORTS_PER_ROW].tobytes()
        yield SegmentRow(Kind.POSTING, b"", part, value)
    for term in np.flatnonzero(postings.counts > FEW).tolist():
        yield SegmentRow(Kind.LARGE, b"", term, encode_places(postings.of(term), count))
    suffixes = _sorted_suffixes(terms)
    yield from _suffix_rows(suffixes, references)
    yield from _Ready(suffixes, postings, count).rows()


def _lay_out(postings: Postings) -> tuple[U32, U16]:
    """What each term refers to, and the messages of terms that have few, end to end."""
    references = np.arange(len(postings.counts), dtype=np.uint32) | np.uint32(LARGE)
    alone = postings.counts == 1
    references[alone] = postings.docs[postings.starts[alone]] | np.uint32(ALONE)
    few = np.flatnonzero(~alone & (postings.counts <= FEW))
    counts = postings.counts[few]
    ends = np.cumsum(counts + 1)
    places = ends - counts - 1
    references[few] = places
    shorts = np.empty(int(ends[-1]) if len(ends) else 0, "<u2")
    shorts[places] = counts
    shorts[spans(places + 1, counts)] = postings.docs[spans(postings.starts[few], counts)]
    return references, shorts


@dataclass(frozen=True, slots=True)
class _Suffixes:
    """Every suffix of every term, in order: where it starts, how long it is, whose it is."""

    flat: U8
    starts: U32
    lengths: U8
    terms: U32


def _sorted_suffixes(terms: Vocabulary) -> _Suffixes:
    """All suffixes; those with some first bytes are sorted before the others, in less memory."""
    is_inside = (terms.flat == BORDER) | ((terms.flat & 0xC0) == 0x80)
    starts = np.flatnonzero(~is_inside).astype(np.uint32)
    heads = (terms.flat[starts].astype(np.uint16) << 8) | terms.flat[starts + np.uint32(1)]
    parts = []
    for first, last in _even_ranges(np.bincount(heads), _AT_ONCE // 8):
        own = starts[(heads >= first) & (heads < last)].astype(np.int64)
        owners = np.searchsorted(terms.starts, own, side="right") - 1
        lengths = (terms.starts + terms.lengths)[owners] - own
        order = sort_strings(terms.flat, own, lengths)
        columns = ((own, np.uint32), (lengths, np.uint8), (owners, np.uint32))
        parts.append([column[order].astype(kind) for column, kind in columns])
    return _Suffixes(terms.flat, *map(np.concatenate, zip(*parts, strict=True)))


def _even_ranges(counts: Int, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of numbers that have so many together, or hardly more."""
    shares = np.cumsum(counts) // most
    edges = [*np.flatnonzero(is_first(shares)).tolist(), len(counts)]
    yield from pairwise(edges)


def _suffix_rows(suffixes: _Suffixes, by_term: U32) -> Iterator[SegmentRow]:
    for first in range(0, len(suffixes.starts), _ROWS_AT_ONCE * PER_ROW):
        chosen = slice(first, first + _ROWS_AT_ONCE * PER_ROW)
        references = by_term[suffixes.terms[chosen]].astype("<u4").tobytes()
        lengths = suffixes.lengths[chosen].astype(np.int64) + 1
        starts = suffixes.starts[chosen].astype(np.int64)
        texts = suffixes.flat[spans(starts, lengths)].tobytes()
        ends = [0, *np.cumsum(lengths).tolist()]
        for start in range(0, len(lengths), PER_ROW):
            stop = min(start + PER_ROW, len(lengths))
            names = texts[ends[start] : ends[stop] - 1]
            key = texts[ends[start] : min(ends[start + 1] - 1, ends[start] + KEY_BYTES)]
            value = len(names).to_bytes(2, "big") + names + references[4 * start : 4 * stop]
            yield SegmentRow(Kind.SUFFIX, key, (first + start) // PER_ROW, value)


class _Ready:
    """Sets of messages for strings that very many terms contain."""

    def __init__(self, suffixes: _Suffixes, postings: Postings, count: int) -> None:
        self._suffixes = suffixes
        self._postings = postings
        self._count = count
        self._least = ready_from(count)
        self._rows: list[SegmentRow] = []

    def rows(self) -> list[SegmentRow]:
        self._union(0, len(self._suffixes.starts), 0)
        return self._rows

    def _union(self, first: int, last: int, depth: int) -> Bools:
        """The messages of some neighbours, which share *depth* bytes."""
        mask = np.zeros(self._count, np.bool_)
        if last - first <= self._least:
            self._gather(mask, first, last)
            return mask
        suffixes = self._suffixes
        lengths = suffixes.lengths[first:last]
        following = suffixes.flat[suffixes.starts[first:last] + np.minimum(depth, lengths)]
        borders = np.flatnonzero(is_first(following))
        edges = [*(borders + first).tolist(), last]
        small: list[tuple[int, int]] = []
        for start, stop in pairwise(edges):
            if stop - start > self._least and suffixes.lengths[start] > depth:
                mask |= self._union(start, stop, depth + 1)
            else:
                small.append((start, stop))
        for start, stop in _neighbours(small):
            self._gather(mask, start, stop)
        if depth and (following[-1] & 0xC0) != 0x80:
            start = int(suffixes.starts[first])
            key = suffixes.flat[start : start + depth].tobytes()
            self._rows.append(SegmentRow(Kind.GRAM, key, 0, encode_mask(mask)))
        return mask

    def _gather(self, mask: Bools, first: int, last: int) -> None:
        terms = self._suffixes.terms[first:last]
        postings = self._postings
        mask[postings.docs[spans(postings.starts[terms], postings.counts[terms])]] = True


def _neighbours(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch."""
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined
