"""Where one token meets the next: the rows that find strings with a border inside.

Each place where a token is followed by another is kept with its message, in the order of what
stands there: the last character of the token, then the tokens that follow. What is before that
character is kept as the rank of the token among those with the same last character, read
backwards; so the tokens that end like a given string are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from postroom.store.search.arrays import U8, Bools, Int, is_first, spans
from postroom.store.search.endings import Endings
from postroom.store.search.heads import Heads, first_sizes
from postroom.store.search.kinds import AFTER_SPACE, NEXT, Kind, SegmentRow
from postroom.store.search.meetings import Meetings, sorted_meetings
from postroom.store.search.tokens import Tokenised
from postroom.store.search.vocabulary import Vocabulary

PER_ROW = 1024
PER_GROUP = 16

RANKED, CUT, UNEVEN = 1, 2, 4
"""What a row says of itself: it has ranks that are not all zero; no group of it has two pairs of
characters that meet; and some of its groups, whose sizes follow the names, are small for it."""


def junction_rows(text: Tokenised, endings: Endings, size: int) -> Iterator[SegmentRow]:
    """All places where a token meets the next, in order, of a segment with so many messages."""
    part = 0
    borders = _Borders(text.terms, endings, text.gap)
    heads = Heads(text.terms, endings, text.gap, size)
    for meetings in sorted_meetings(text, endings):
        pairs = heads.pairs(meetings)
        groups = _group_starts(pairs)
        begins = np.zeros(len(groups), np.bool_)
        begins[1:] = pairs[groups[1:]] != pairs[groups[1:] - 1]
        for row in _rows(meetings, endings, borders.of(meetings, groups, begins), groups):
            yield row._replace(part=part)
            part += 1
        yield from heads.take(meetings, pairs)
    yield from heads.finish()


def _group_starts(pairs: Int) -> Int:
    """Where groups begin: with every pair of characters, and again after so many meetings."""
    starts = np.flatnonzero(is_first(pairs))
    places = np.arange(len(pairs))
    places -= np.repeat(starts, np.diff(starts, append=len(pairs)))
    return np.flatnonzero(places % PER_GROUP == 0)


def _rows(
    meetings: Meetings, endings: Endings, borders: tuple[bytes, list[int]], groups: Int
) -> Iterator[SegmentRow]:
    docs = meetings.docs.astype("<u2").tobytes()
    ranks = endings.ranks[meetings.left].astype("<u2").tobytes()
    texts, ends = borders
    sizes = np.diff(groups, append=len(meetings)).astype(np.uint8).tobytes()
    edges = [*np.flatnonzero(is_first(groups // PER_ROW)).tolist(), len(groups)]
    bounds = [*groups.tolist(), len(meetings)]
    for group, after in pairwise(edges):
        first, last = 2 * bounds[group], 2 * bounds[after]
        names = texts[ends[group] : ends[after] - 1]
        key = texts[ends[group] : ends[group + 1] - 1]
        own = ranks[first:last]
        own = b"" if own.count(0) == len(own) else own
        sized = sizes[group:after]
        sized = b"" if sized.count(PER_GROUP, 0, -1) == len(sized) - 1 else sized
        marks = CUT | (RANKED if own else 0) | (UNEVEN if sized else 0)
        head = bytes([marks]) + len(names).to_bytes(3, "big") + names + sized
        yield SegmentRow(Kind.JUNCTION, key, 0, head + docs[first:last] + own)


class _Borders:
    """For every group a string above all that is before it and not above what is in it."""

    def __init__(self, terms: Vocabulary, endings: Endings, gap: int) -> None:
        self._terms = terms
        self._endings = endings
        self._gap = gap
        self._first = first_sizes(terms)

    def of(self, meetings: Meetings, heads: Int, begins: Bools) -> tuple[bytes, list[int]]:
        """The strings joined, and where each begins; one more for the end.

        Where a pair of characters begins, the pair is enough.
        """
        terms, endings = self._terms, self._endings
        before = np.maximum(heads - 1, 0)
        left = meetings.left[heads]
        sizes = endings.sizes[left]
        ends = terms.starts[left] + terms.lengths[left]
        pieces = [(ends - sizes, sizes, np.zeros(len(heads), np.int64))]
        same = endings.characters[left] == endings.characters[meetings.left[before]]
        for ahead, column in enumerate(meetings.following):
            following = column[heads].astype(np.int64)
            wanted = (following > 0) & (same | (ahead == 0))
            own = np.maximum((following & (self._gap - 1)) - 1, 0)
            marks = np.where(following >= self._gap, 1 + AFTER_SPACE[0], 1 + NEXT[0]) * wanted
            lengths = np.where(begins, self._first[own], terms.lengths[own]) * wanted
            pieces.append((terms.starts[own], lengths, marks))
            same &= (following == column[before]) & ~begins
        return _written(terms.flat, pieces, len(heads))


def _written(flat: U8, pieces: list[tuple[Int, Int, Int]], count: int) -> tuple[bytes, list[int]]:
    """Each string from its pieces; a mark of one or two before a piece, a line feed at the end."""
    total = np.ones(count, np.int64)
    for _, lengths, marks in pieces:
        total += lengths + (marks > 0)
    ends = np.cumsum(total)
    out = np.full(int(ends[-1]) if count else 0, 10, np.uint8)
    place = ends - total
    for starts, lengths, marks in pieces:
        marked = marks > 0
        out[place[marked]] = (marks[marked] - 1).astype(np.uint8)
        place = place + marked
        out[spans(place, lengths)] = flat[spans(starts, lengths)]
        place = place + lengths
    return out.tobytes(), [0, *ends.tolist()]
