"""Writing boundary postings, which find strings with a token boundary inside. See README.md."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise

import numpy as np

from postroom.store.search.postings.token_pairs import (
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
    U16,
    U32,
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

    def add(self, pairs: TokenPairs, bigrams: Int, firsts: Int, docs: Tokens) -> list[SegmentRow]:
        """Add pairs, and return the rows of bigrams that are complete."""
        lasts = np.append(firsts[1:], len(bigrams))
        is_hot = lasts - firsts > HOT_FROM
        is_hot[[0, -1]] = True
        starts, stops = firsts.compress(is_hot), lasts.compress(is_hot)
        names, ends = self._keys.of(pairs, bigrams, starts, np.ones(len(starts), np.bool_))
        rows: list[SegmentRow] = []
        for at, (first, last) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            if bigrams[first] != self._bigram:
                rows += self.finish()
                self._bigram, self._key = int(bigrams[first]), names[ends[at] : ends[at + 1] - 1]
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
    for pairs in sorted_token_pairs(text, endings):
        characters, ranks = pairs.endings()
        bigrams, docs = keys.bigrams(characters, pairs.tokens(1)), pairs.docs()
        firsts = np.flatnonzero(is_first(bigrams))
        groups, starts_bigram = _groups(firsts, len(bigrams))
        names = keys.of(pairs, bigrams, groups, starts_bigram)
        yield from _rows(docs, ranks, names, groups, parts)
        yield from hot.add(pairs, bigrams, firsts, docs)
    yield from hot.finish()


def _groups(firsts: Int, size: int) -> tuple[Int, Bools]:
    """A group starts with every bigram, and again after `PER_GROUP` pairs.

    The bigram of the first group can have started before.
    """
    counts = (np.diff(firsts, append=size) + PER_GROUP - 1) // PER_GROUP
    before = np.cumsum(counts) - counts
    groups = np.repeat(firsts - PER_GROUP * before, counts)
    groups += PER_GROUP * np.arange(len(groups))
    starts_bigram = np.zeros(len(groups), np.bool_)
    starts_bigram[before[1:]] = True
    return groups, starts_bigram


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


_CHARACTER_BITS = 32
"""A bigram is the character before the boundary above the one after it, with these bits each."""


class BoundaryKeys:
    """Keys and bigrams of token pairs."""

    def __init__(self, text: TokenizedTexts, endings: Endings) -> None:
        self._terms = terms = text.terms
        self._lookahead, self._space_flag = text.lookahead, text.space_flag
        self._flat = np.append(terms.flat, np.frombuffer(ADJACENT + AFTER_SPACE, np.uint8))
        """All bytes of which keys consist: the terms end with a separator, the markers follow."""
        self._character_sizes = np.empty(len(terms), np.int64)
        self._character_sizes[endings.characters] = endings.sizes
        self._character_starts = np.empty(len(terms), np.int64)
        self._character_starts[endings.characters] = terms.starts + terms.lengths - endings.sizes
        leads = terms.flat[terms.starts]
        self._first_sizes: Int = 1 + (leads >= 0xC0) + (leads >= 0xE0) + (leads >= 0xF0)
        """The number of bytes of the first character of each term."""
        values = masked_words(terms.flat, terms.starts, self._first_sizes)
        _, numbers = np.unique(values, return_inverse=True)
        self._numbers = by_token(numbers.astype(np.uint32), text.space_flag)
        self._numbers[text.space_flag :] += np.uint32(1 << 31)

    def bigrams(self, characters: U32, following: Tokens) -> Int:
        """The two characters at each boundary, as one number."""
        bigrams: Int = characters.astype(np.int64)
        bigrams <<= _CHARACTER_BITS
        bigrams |= self._numbers.take(following)
        return bigrams

    def of(
        self, pairs: TokenPairs, bigrams: Int, groups: Int, starts_bigram: Bools
    ) -> tuple[bytes, list[int]]:
        """The keys of groups, joined, and where each starts; one more for the end.

        A key is above everything before its group and not above what is in it. Where a bigram
        starts, the bigram is enough.
        """
        terms, separator = self._terms, len(self._terms.flat) - 1
        starts = np.empty((2 * self._lookahead + 2, len(groups)), np.int64)
        lengths = np.zeros(starts.shape, np.int64)
        before = np.maximum(groups - 1, 0)
        left = bigrams.take(groups) >> _CHARACTER_BITS
        starts[0], lengths[0] = self._character_starts.take(left), self._character_sizes.take(left)
        starts[-1], lengths[-1] = separator, 1
        may_go_on = (left == bigrams.take(before) >> _CHARACTER_BITS) & ~starts_bigram
        used = np.arange(len(groups))
        for position in range(1, self._lookahead + 1):
            tokens = pairs.tokens(position, groups.take(used))
            is_token = tokens > 0
            used, tokens = used.compress(is_token), tokens.compress(is_token)
            own = (tokens & np.uint32(self._space_flag - 1)).astype(np.int64) - 1
            starts[2 * position - 1, used] = separator + 1 + (tokens >= self._space_flag)
            lengths[2 * position - 1, used] = 1
            starts[2 * position, used] = terms.starts.take(own)
            lengths[2 * position, used] = np.where(
                starts_bigram.take(used), self._first_sizes.take(own), terms.lengths.take(own)
            )
            continues = tokens == pairs.tokens(position, before.take(used))
            used = used.compress(continues & may_go_on.take(used))
        ends = np.cumsum(lengths.sum(axis=0)).tolist()
        names = self._flat.take(spans(starts.T.ravel(), lengths.T.ravel())).tobytes()
        return names, [0, *ends]
