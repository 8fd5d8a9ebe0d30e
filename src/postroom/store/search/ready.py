"""Sets of messages, ready for strings that very many terms contain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from postroom.store.search.arrays import U8, U16, Bools, Int, is_first, spans
from postroom.store.search.kinds import Kind, SegmentRow
from postroom.store.search.rows import encode_mask
from postroom.store.search.suffixes import Suffixes


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


class Ready:
    """Takes the suffixes in order. What begins with one byte may come in several portions."""

    def __init__(self, postings: Postings, count: int) -> None:
        self._postings = postings
        self._count = count
        self._least = ready_from(count)
        self._byte = b""
        self._suffixes = 0
        self._mask = self._nothing()
        self._rows: list[SegmentRow] = []

    def take(self, suffixes: Suffixes) -> list[SegmentRow]:
        """The rows for strings of which all suffixes are known now."""
        leads = suffixes.flat[suffixes.starts]
        edges = [*np.flatnonzero(is_first(leads)).tolist(), len(leads)]
        for first, last in pairwise(edges):
            byte = bytes([int(leads[first])])
            if byte != self._byte:
                self._close()
                self._byte, self._suffixes, self._mask = byte, 0, self._nothing()
            self._suffixes += last - first
            self._mask |= self._union(suffixes, first, last, 1)
        return self._taken()

    def finish(self) -> list[SegmentRow]:
        """The last row."""
        self._close()
        return self._taken()

    def _close(self) -> None:
        """All that begins with this byte is known."""
        if self._suffixes > self._least and self._byte < b"\x80":
            self._rows.append(SegmentRow(Kind.GRAM, self._byte, 0, encode_mask(self._mask)))

    def _taken(self) -> list[SegmentRow]:
        rows, self._rows = self._rows, []
        return rows

    def _nothing(self) -> Bools:
        return np.zeros(self._count, np.bool_)

    def _union(self, suffixes: Suffixes, first: int, last: int, depth: int) -> Bools:
        """The messages of some neighbours, which share *depth* bytes."""
        mask = self._nothing()
        if last - first <= self._least:
            self._gather(mask, suffixes, first, last)
            return mask
        lengths = suffixes.lengths[first:last]
        following = suffixes.flat[suffixes.starts[first:last] + np.minimum(depth, lengths)]
        small: list[tuple[int, int]] = []
        for start, stop in _runs(following, first, last):
            if stop - start > self._least and suffixes.lengths[start] > depth:
                mask |= self._union(suffixes, start, stop, depth + 1)
            else:
                small.append((start, stop))
        for start, stop in _neighbours(small):
            self._gather(mask, suffixes, start, stop)
        if depth > 1 and (following[-1] & 0xC0) != 0x80:
            start = int(suffixes.starts[first])
            key = suffixes.flat[start : start + depth].tobytes()
            self._rows.append(SegmentRow(Kind.GRAM, key, 0, encode_mask(mask)))
        return mask

    def _gather(self, mask: Bools, suffixes: Suffixes, first: int, last: int) -> None:
        terms = suffixes.terms[first:last]
        postings = self._postings
        mask[postings.docs[spans(postings.starts[terms], postings.counts[terms])]] = True


def _runs(values: U8, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Neighbours with the same value, between two places."""
    yield from pairwise([*(np.flatnonzero(is_first(values)) + first).tolist(), last])


def _neighbours(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch."""
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined
