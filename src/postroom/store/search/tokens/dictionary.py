"""The term dictionary of a segment that is being built: distinct terms and their suffixes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from postroom.store.search.tokens.arrays import (
    PADDING,
    U8,
    U16,
    U32,
    U64,
    Bools,
    Int,
    hash_strings,
    is_first,
    masked_words,
    sort_strings,
    spans,
)

SEPARATOR = 10
"""The byte after every term and every text; no term contains it."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Distinct terms, usually sorted; a term is identified by its index."""

    flat: U8
    starts: Int
    lengths: Int

    def __len__(self) -> int:
        return len(self.starts)


def pack_terms(flat: U8, starts: Int, lengths: Int) -> Terms:
    """Copy strings out of *flat*, each followed by a separator."""
    ends = np.cumsum(lengths + 1)
    flat_terms = np.full((int(ends[-1]) if len(ends) else 0) + len(PADDING), SEPARATOR, np.uint8)
    own = ends - lengths - 1
    flat_terms[spans(own, lengths)] = flat[spans(starts, lengths)]
    return Terms(flat_terms, own, lengths)


class TermDictionary:
    """Gives each distinct term a number, from zero on, in order of first occurrence.

    Terms are looked up by hash and compared in full; terms with colliding hashes are in a dict.
    """

    def __init__(self) -> None:
        self._hashes: U64 = np.empty(0, np.uint64)
        self._numbers: U32 = np.empty(0, np.uint32)
        self._flat: U8 = np.frombuffer(PADDING, np.uint8)
        self._starts: Int = np.empty(0, np.int64)
        self._lengths: Int = np.empty(0, np.int64)
        self._collisions: dict[bytes, int] = {}

    def numbers(self, terms: Terms) -> U32:
        """The numbers of distinct terms; unknown terms are added."""
        hashes = hash_strings(terms.flat, terms.starts, terms.lengths)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        slots = np.searchsorted(self._hashes, ordered)
        is_known = np.zeros(len(order), np.bool_)
        inside = slots < len(self._hashes)
        is_known[inside] = self._hashes[slots[inside]] == ordered[inside]
        is_new = ~is_known & is_first(ordered)
        numbers = np.empty(len(order), np.uint32)
        known = self._numbers[slots[is_known]]
        numbers[order[is_known]] = known
        collides = ~(is_known | is_new)
        collides[is_known] = ~self._are_equal(terms, order[is_known], known)
        numbers[order[is_new]] = self._append(terms, order[is_new])
        self._hashes = np.insert(self._hashes, slots[is_new], ordered[is_new])
        self._numbers = np.insert(self._numbers, slots[is_new], numbers[order[is_new]])
        for term in order[collides].tolist():
            numbers[term] = self._collision_number(terms, term)
        return numbers

    def _are_equal(self, terms: Terms, own: Int, known: U32) -> Bools:
        lengths = terms.lengths[own]
        equal: Bools = lengths == self._lengths[known]
        depth, rest = 0, np.flatnonzero(equal)
        while len(rest):
            left = lengths[rest] - depth
            ours = masked_words(terms.flat, terms.starts[own[rest]] + depth, left)
            theirs = masked_words(self._flat, self._starts[known[rest]] + depth, left)
            equal[rest] &= ours == theirs
            depth += 8
            rest = rest[lengths[rest] > depth]
        return equal

    def _append(self, terms: Terms, chosen: Int) -> U32:
        count = len(self._starts)
        new = pack_terms(terms.flat, terms.starts[chosen], terms.lengths[chosen])
        end = len(self._flat) - len(PADDING)
        self._flat = np.concatenate((self._flat[:end], new.flat))
        self._starts = np.append(self._starts, new.starts + end)
        self._lengths = np.append(self._lengths, new.lengths)
        return np.arange(count, count + len(chosen), dtype=np.uint32)

    def _collision_number(self, terms: Terms, term: int) -> int:
        start = int(terms.starts[term])
        name = terms.flat[start : start + int(terms.lengths[term])].tobytes()
        if name not in self._collisions:
            self._collisions[name] = int(self._append(terms, np.array([term]))[0])
        return self._collisions[name]

    def finish(self) -> tuple[Terms, U32]:
        """The sorted terms, and the rank of each by its number. Empties the dictionary."""
        self._hashes, self._numbers = np.empty(0, np.uint64), np.empty(0, np.uint32)
        order = sort_strings(self._flat, self._starts, self._lengths)
        ranks = np.empty(len(order), np.uint32)
        ranks[order] = np.arange(len(order), dtype=np.uint32)
        terms = pack_terms(self._flat, self._starts[order], self._lengths[order])
        self._flat = np.empty(0, np.uint8)
        return terms, ranks


_BATCH = 1 << 17
_NO_PREFIX = 0xFFFF
"""Not the first two bytes of any UTF-8 string."""


@dataclass(frozen=True, slots=True)
class Suffixes:
    """Sorted suffixes: where each starts, its length, and its term."""

    flat: U8
    starts: U32
    lengths: U8
    terms: U32


def sorted_suffixes(terms: Terms) -> Iterator[Suffixes]:
    """All suffixes in batches; those with the same first two bytes are in one batch."""
    prefixes = _prefixes(terms.flat)
    counts = np.bincount(prefixes, minlength=_NO_PREFIX + 1)[:_NO_PREFIX]
    for first, last in _even_ranges(counts, _BATCH):
        own = np.flatnonzero((prefixes >= first) & (prefixes < last))
        if not len(own):
            continue
        owners = np.searchsorted(terms.starts, own, side="right") - 1
        lengths = terms.starts[owners] + terms.lengths[owners] - own
        order = sort_strings(terms.flat, own, lengths)
        yield Suffixes(
            terms.flat,
            own[order].astype(np.uint32),
            lengths[order].astype(np.uint8),
            owners[order].astype(np.uint32),
        )


def _prefixes(flat: U8) -> U16:
    """The first two bytes of the suffix that starts at each position, if one does."""
    prefixes = np.full(len(flat), _NO_PREFIX, np.uint16)
    prefixes[:-1] = flat[:-1]
    prefixes[:-1] <<= 8
    prefixes[:-1] |= flat[1:]
    prefixes[(flat == SEPARATOR) | ((flat & 0xC0) == 0x80)] = _NO_PREFIX
    return prefixes


def _even_ranges(counts: Int, batch: int) -> Iterator[tuple[int, int]]:
    """Ranges of values with about *batch* occurrences each."""
    shares = np.cumsum(counts) // batch
    edges = [*np.flatnonzero(is_first(shares)).tolist(), len(counts)]
    yield from pairwise(edges)
