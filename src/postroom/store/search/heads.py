"""Two characters that meet very often have their messages ready."""

from __future__ import annotations

import numpy as np

from postroom.store.search.arrays import Int, is_first, masked_words
from postroom.store.search.endings import Endings
from postroom.store.search.kinds import AFTER_SPACE, NEXT, Kind, SegmentRow
from postroom.store.search.meetings import Meetings
from postroom.store.search.rows import encode_mask
from postroom.store.search.vocabulary import Vocabulary

READY_FROM = 2048
"""How often is very often."""


def first_sizes(terms: Vocabulary) -> Int:
    """How many bytes the first character of each term has."""
    leads = terms.flat[terms.starts]
    sizes: Int = 1 + (leads >= 0xC0) + (leads >= 0xE0) + (leads >= 0xF0).astype(np.int64)
    return sizes


class Heads:
    """Takes meetings in order; those of two characters may come in several portions."""

    def __init__(self, terms: Vocabulary, endings: Endings, gap: int, size: int) -> None:
        self._sizes = first_sizes(terms)
        values = masked_words(terms.flat, terms.starts, self._sizes)
        _, first = np.unique(values, return_inverse=True)
        self._numbers = np.append(first, 0).astype(np.uint32)
        self._count = int(first.max()) + 1 if len(first) else 0
        self._terms, self._endings, self._gap = terms, endings, gap
        self._pair, self._key, self._met = -1, b"", 0
        self._mask = np.zeros(size, np.bool_)

    def take(self, meetings: Meetings, pairs: Int) -> list[SegmentRow]:
        """The rows of all pairs that surely come no more."""
        edges = np.append(np.flatnonzero(is_first(pairs)), len(pairs))
        is_wanted = np.diff(edges) > READY_FROM
        is_wanted[[0, -1]] = True
        rows: list[SegmentRow] = []
        for at in np.flatnonzero(is_wanted).tolist():
            first, last = int(edges[at]), int(edges[at + 1])
            if pairs[first] != self._pair:
                rows += self.finish()
                self._pair, self._key = int(pairs[first]), self._key_of(meetings, first)
            self._met += last - first
            self._mask[meetings.docs[first:last]] = True
        return rows

    def finish(self) -> list[SegmentRow]:
        """The row of the pair that came last, if it has one."""
        rows: list[SegmentRow] = []
        if self._met > READY_FROM:
            rows.append(SegmentRow(Kind.HEAD, self._key, 0, encode_mask(self._mask)))
        self._pair, self._met = -1, 0
        self._mask[:] = False
        return rows

    def pairs(self, meetings: Meetings) -> Int:
        """The two characters that meet at each place, as one number."""
        following = meetings.following[0]
        numbers = self._numbers[(following & np.uint32(self._gap - 1)) - np.uint32(1)]
        numbers += np.uint32(self._count) * (following >= self._gap)
        pairs: Int = self._endings.characters[meetings.left].astype(np.int64) << 32
        pairs += numbers
        return pairs

    def _key_of(self, meetings: Meetings, place: int) -> bytes:
        own, following = int(meetings.left[place]), int(meetings.following[0][place])
        term = (following & (self._gap - 1)) - 1
        end = int(self._terms.starts[own] + self._terms.lengths[own])
        start = int(self._terms.starts[term])
        flat = self._terms.flat
        key = flat[end - int(self._endings.sizes[own]) : end].tobytes()
        key += AFTER_SPACE if following >= self._gap else NEXT
        return key + flat[start : start + int(self._sizes[term])].tobytes()
