"""Writing boundary postings, which find strings with a token boundary inside. See README.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise

import numpy as np

from postroom.store.search.postings.token_pairs import (
    LEFT,
    Endings,
    TokenPairs,
    Tokens,
    by_token,
    sorted_token_pairs,
)
from postroom.store.search.segments.segment import ADJACENT, AFTER_SPACE, Kind, SegmentRow
from postroom.store.search.segments.snapshot import encode_mask
from postroom.store.search.tokens.arrays import (
    PADDING,
    U8,
    U16,
    Bools,
    Int,
    is_first,
    masked_words,
    spans,
)
from postroom.store.search.tokens.tokenizer import TokenizedTexts

ENDINGS_PER_ROW = 128


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


HOT_FROM = 2048
"""Bigrams of two characters with more boundaries than this have their messages cached."""


class HotBigrams:
    """Caches the messages of frequent bigrams from sorted pairs, which come in batches."""

    def __init__(self, keys: BoundaryKeys, size: int) -> None:
        self._keys = keys
        self._bigram, self._key, self._pair_count = -1, b"", 0
        self._mask = np.zeros(size, np.bool_)

    def add(self, pairs: TokenPairs, bigrams: Int, docs: Tokens) -> list[SegmentRow]:
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
            self._mask[docs[first:last]] = True
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
    keys = BoundaryKeys(text, endings)
    hot = HotBigrams(keys, size)
    ranks = by_token(endings.ranks, text.space_flag)
    for pairs in sorted_token_pairs(text, endings):
        bigrams = keys.bigrams(pairs)
        groups = _group_starts(bigrams)
        starts_bigram = np.zeros(len(groups), np.bool_)
        starts_bigram[1:] = bigrams[groups[1:]] != bigrams[groups[1:] - 1]
        names, docs = keys.of(pairs, groups, starts_bigram), pairs.docs()
        yield from _rows(docs, ranks.take(pairs.tokens(LEFT)), names, groups, parts)
        yield from hot.add(pairs, bigrams, docs)
    yield from hot.finish()


def _group_starts(bigrams: Int) -> Int:
    """A group starts with every bigram, and again after `PER_GROUP` pairs."""
    starts = np.flatnonzero(is_first(bigrams))
    counts = (np.diff(starts, append=len(bigrams)) + PER_GROUP - 1) // PER_GROUP
    firsts = np.repeat(starts - PER_GROUP * (np.cumsum(counts) - counts), counts)
    firsts += PER_GROUP * np.arange(len(firsts))
    return firsts


def _rows(
    doc_ids: Tokens,
    ranks_of_pairs: U16,
    keys: tuple[bytes, list[int]],
    groups: Int,
    parts: Iterator[int],
) -> Iterator[SegmentRow]:
    docs = doc_ids.astype("<u2").tobytes()
    ranks = ranks_of_pairs.astype("<u2").tobytes()
    texts, ends = keys
    sizes = np.diff(groups, append=len(doc_ids)).astype(np.uint8).tobytes()
    edges = [*np.flatnonzero(is_first(groups // PER_ROW)).tolist(), len(groups)]
    bounds = [*groups.tolist(), len(doc_ids)]
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

    def __init__(self, text: TokenizedTexts, endings: Endings) -> None:
        self._terms = terms = text.terms
        self._endings, self._lookahead = endings, text.lookahead
        self._space_flag = space_flag = text.space_flag
        leads = terms.flat[terms.starts]
        self._first_sizes: Int = 1 + (leads >= 0xC0) + (leads >= 0xE0) + (leads >= 0xF0)
        """The number of bytes of the first character of each term."""
        values = masked_words(terms.flat, terms.starts, self._first_sizes)
        _, numbers = np.unique(values, return_inverse=True)
        self._characters = by_token(endings.characters.astype(np.int64) << 32, space_flag)
        self._numbers = by_token(numbers.astype(np.int64), space_flag)
        self._numbers[space_flag:] += 1 << 31

    def bigrams(self, pairs: TokenPairs) -> Int:
        """The two characters at each boundary, as one number."""
        bigrams: Int = self._characters.take(pairs.tokens(LEFT))
        bigrams += self._numbers.take(pairs.tokens(1))
        return bigrams

    def of(self, pairs: TokenPairs, groups: Int, starts_bigram: Bools) -> tuple[bytes, list[int]]:
        """The keys of groups, joined, and where each starts; one more for the end.

        A key is above everything before its group and not above what is in it. Where a bigram
        starts, the bigram is enough.
        """
        terms, endings = self._terms, self._endings
        before = np.maximum(groups - 1, 0)
        left = self._terms_of(pairs, groups)
        sizes = endings.sizes.take(left)
        ends = terms.starts.take(left) + terms.lengths.take(left)
        pieces = [(ends - sizes, sizes, np.zeros(len(groups), np.int64))]
        same = endings.characters[left] == endings.characters[self._terms_of(pairs, before)]
        for position in range(1, self._lookahead + 1):
            following = pairs.tokens(position, groups).astype(np.int64)
            is_used = (following > 0) & (same | (position == 1))
            own = np.maximum((following & (self._space_flag - 1)) - 1, 0)
            marker = np.where(following >= self._space_flag, AFTER_SPACE[0], ADJACENT[0])
            lengths = np.where(starts_bigram, self._first_sizes.take(own), terms.lengths.take(own))
            lengths *= is_used
            pieces.append((terms.starts.take(own), lengths, (marker + 1) * is_used))
            same &= (following == pairs.tokens(position, before)) & ~starts_bigram
        return _join_strings(terms.flat, pieces, len(groups))

    def _terms_of(self, pairs: TokenPairs, at: Int) -> Int:
        """The terms before some boundaries."""
        return (pairs.tokens(LEFT, at) & np.uint32(self._space_flag - 1)).astype(np.int64) - 1


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
        out[spans(offset, lengths)] = flat.take(spans(starts, lengths))
        offset = offset + lengths
    return out.tobytes(), [0, *ends.tolist()]
