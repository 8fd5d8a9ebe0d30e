"""Writing boundary postings, which find strings with a token boundary inside. See README.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from postroom.store.search.postings.masks import encode_mask
from postroom.store.search.postings.token_pairs import Endings, TokenPairs, sorted_token_pairs
from postroom.store.search.segments.segment import ADJACENT, AFTER_SPACE, Kind, SegmentRow
from postroom.store.search.tokens.arrays import U8, Bools, Int, is_first, masked_words, spans
from postroom.store.search.tokens.dictionary import Terms
from postroom.store.search.tokens.tokenizer import TokenizedTexts

HOT_FROM = 2048
"""Bigrams of two characters with more boundaries than this have their messages cached."""


def first_sizes(terms: Terms) -> Int:
    """The number of bytes of the first character of each term."""
    leads = terms.flat[terms.starts]
    sizes: Int = 1 + (leads >= 0xC0) + (leads >= 0xE0) + (leads >= 0xF0).astype(np.int64)
    return sizes


class HotBigrams:
    """Caches the messages of frequent bigrams from sorted pairs, which come in batches."""

    def __init__(self, terms: Terms, endings: Endings, space_flag: int, size: int) -> None:
        self._sizes = first_sizes(terms)
        values = masked_words(terms.flat, terms.starts, self._sizes)
        _, first = np.unique(values, return_inverse=True)
        self._numbers = np.append(first, 0).astype(np.uint32)
        self._count = int(first.max()) + 1 if len(first) else 0
        self._terms, self._endings, self._space_flag = terms, endings, space_flag
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
                self._bigram, self._key = int(bigrams[first]), self._key_of(pairs, first)
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

    def bigrams(self, pairs: TokenPairs) -> Int:
        """The two characters at each boundary, as one number."""
        following = pairs.following[0]
        numbers = self._numbers[(following & np.uint32(self._space_flag - 1)) - np.uint32(1)]
        numbers += np.uint32(self._count) * (following >= self._space_flag)
        bigrams: Int = self._endings.characters[pairs.left].astype(np.int64) << 32
        bigrams += numbers
        return bigrams

    def _key_of(self, pairs: TokenPairs, index: int) -> bytes:
        own, following = int(pairs.left[index]), int(pairs.following[0][index])
        term = (following & (self._space_flag - 1)) - 1
        end = int(self._terms.starts[own] + self._terms.lengths[own])
        start = int(self._terms.starts[term])
        flat = self._terms.flat
        key = flat[end - int(self._endings.sizes[own]) : end].tobytes()
        key += AFTER_SPACE if following >= self._space_flag else ADJACENT
        return key + flat[start : start + int(self._sizes[term])].tobytes()


PER_ROW = 1024
PER_GROUP = 16

HAS_RANKS, BIGRAM_ALIGNED, HAS_SIZES = 1, 2, 4
"""Flags of a row: its ranks are not all zero; no group holds two bigrams; some groups have fewer
than `PER_GROUP` entries, and the sizes follow the keys."""


def boundary_rows(text: TokenizedTexts, endings: Endings, size: int) -> Iterator[SegmentRow]:
    """All boundaries in order, of a segment with *size* messages."""
    part = 0
    keys = _GroupKeys(text.terms, endings, text.space_flag)
    hot = HotBigrams(text.terms, endings, text.space_flag, size)
    for pairs in sorted_token_pairs(text, endings):
        bigrams = hot.bigrams(pairs)
        groups = _group_starts(bigrams)
        starts_bigram = np.zeros(len(groups), np.bool_)
        starts_bigram[1:] = bigrams[groups[1:]] != bigrams[groups[1:] - 1]
        for row in _rows(pairs, endings, keys.of(pairs, groups, starts_bigram), groups):
            yield row._replace(part=part)
            part += 1
        yield from hot.add(pairs, bigrams)
    yield from hot.finish()


def _group_starts(bigrams: Int) -> Int:
    """A group starts with every bigram, and again after `PER_GROUP` pairs."""
    starts = np.flatnonzero(is_first(bigrams))
    offsets = np.arange(len(bigrams))
    offsets -= np.repeat(starts, np.diff(starts, append=len(bigrams)))
    return np.flatnonzero(offsets % PER_GROUP == 0)


def _rows(
    pairs: TokenPairs, endings: Endings, keys: tuple[bytes, list[int]], groups: Int
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
        yield SegmentRow(Kind.BOUNDARY, key, 0, head + docs[first:last] + own)


class _GroupKeys:
    """A key for each group, above everything before the group and not above what is in it."""

    def __init__(self, terms: Terms, endings: Endings, space_flag: int) -> None:
        self._terms = terms
        self._endings = endings
        self._space_flag = space_flag
        self._first = first_sizes(terms)

    def of(self, pairs: TokenPairs, groups: Int, starts_bigram: Bools) -> tuple[bytes, list[int]]:
        """The keys joined, and where each starts; one more for the end.

        Where a bigram starts, the bigram is enough.
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
            lengths = np.where(starts_bigram, self._first[own], terms.lengths[own]) * is_used
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
