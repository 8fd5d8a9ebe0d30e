"""All terms of a segment, numbered as they come, known again by their hashes."""

from __future__ import annotations

import numpy as np

from postroom.store.search.arrays import (
    PADDING,
    U8,
    U32,
    U64,
    Bools,
    Int,
    hash_strings,
    is_first,
    masked_words,
    sort_strings,
)
from postroom.store.search.vocabulary import Vocabulary, packed


class Lexicon:
    """Gives each distinct term a number, the first being zero.

    Terms are looked up by hash and compared in full. The few whose hash another term has are in
    a dictionary of their own.
    """

    def __init__(self) -> None:
        self._hashes: U64 = np.empty(0, np.uint64)
        self._numbers: U32 = np.empty(0, np.uint32)
        self._flat: U8 = np.frombuffer(PADDING, np.uint8)
        self._starts: Int = np.empty(0, np.int64)
        self._lengths: Int = np.empty(0, np.int64)
        self._clashing: dict[bytes, int] = {}

    def numbers(self, terms: Vocabulary) -> U32:
        """The numbers of some distinct terms; new ones get the next."""
        hashes = hash_strings(terms.flat, terms.starts, terms.lengths)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        places = np.searchsorted(self._hashes, ordered)
        is_known = np.zeros(len(order), np.bool_)
        inside = places < len(self._hashes)
        is_known[inside] = self._hashes[places[inside]] == ordered[inside]
        is_new = ~is_known & is_first(ordered)
        numbers = np.empty(len(order), np.uint32)
        known = self._numbers[places[is_known]]
        numbers[order[is_known]] = known
        clashes = ~(is_known | is_new)
        clashes[is_known] = ~self._are_equal(terms, order[is_known], known)
        numbers[order[is_new]] = self._take(terms, order[is_new])
        self._hashes = np.insert(self._hashes, places[is_new], ordered[is_new])
        self._numbers = np.insert(self._numbers, places[is_new], numbers[order[is_new]])
        for term in order[clashes].tolist():
            numbers[term] = self._clashing_number(terms, term)
        return numbers

    def _are_equal(self, terms: Vocabulary, own: Int, known: U32) -> Bools:
        """Whether terms have all bytes in common with known ones."""
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

    def _take(self, terms: Vocabulary, chosen: Int) -> U32:
        """Keep new terms, and number them."""
        count = len(self._starts)
        new = packed(terms.flat, terms.starts[chosen], terms.lengths[chosen])
        end = len(self._flat) - len(PADDING)
        self._flat = np.concatenate((self._flat[:end], new.flat))
        self._starts = np.append(self._starts, new.starts + end)
        self._lengths = np.append(self._lengths, new.lengths)
        return np.arange(count, count + len(chosen), dtype=np.uint32)

    def _clashing_number(self, terms: Vocabulary, term: int) -> int:
        start = int(terms.starts[term])
        name = terms.flat[start : start + int(terms.lengths[term])].tobytes()
        if name not in self._clashing:
            self._clashing[name] = int(self._take(terms, np.array([term]))[0])
        return self._clashing[name]

    def finish(self) -> tuple[Vocabulary, U32]:
        """All terms in order, and the place of each by its number. The lexicon is used up."""
        self._hashes, self._numbers = np.empty(0, np.uint64), np.empty(0, np.uint32)
        order = sort_strings(self._flat, self._starts, self._lengths)
        places = np.empty(len(order), np.uint32)
        places[order] = np.arange(len(order), dtype=np.uint32)
        terms = packed(self._flat, self._starts[order], self._lengths[order])
        self._flat = np.empty(0, np.uint8)
        return terms, places
