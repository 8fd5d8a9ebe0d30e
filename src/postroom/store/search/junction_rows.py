"""Where one token meets the next: the rows that find strings with a border inside.

Each place where a token is followed by another is kept with its message, in the order of what
stands there: the last character of the token, then the tokens that follow. What is before that
character is kept as the rank of the token among those with the same last character, read
backwards; so the tokens that end like a given string are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from postroom.store.search.arrays import (
    PADDING,
    U8,
    U16,
    U32,
    Int,
    is_first,
    masked_words,
    sort_packed,
    sort_strings,
    spans,
)
from postroom.store.search.kinds import Kind, SegmentRow
from postroom.store.search.rows import encode_mask
from postroom.store.search.tokens import AHEAD, Tokenised, Vocabulary

PER_ROW = 1024
PER_GROUP = 16
ENDINGS_PER_ROW = 128

NEXT, AFTER_SPACE = b"\0", b"\1"
"""Before each following token: does it stand right there, or after a space?"""

UNRANKED, RANKED = b"\0", b"\1"
"""A row where all ranks are zero has none."""

READY_FROM = 2048
"""Two characters that meet more often have their messages ready."""

_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Endings:
    """The last character of every term, and its rank among those that share it."""

    characters: U16
    sizes: Int
    ranks: U16
    order: Int
    """All terms, read backwards, in order."""
    firsts: Int
    """Where a new last character begins in that order."""
    shifts: Int
    """How much of the rank is dropped to fit, by term."""


def find_endings(terms: Vocabulary) -> Endings:
    """Rank the terms by how they end."""
    ends = terms.starts + terms.lengths
    backwards = np.append(terms.flat[::-1], np.zeros(len(PADDING), np.uint8))
    order = sort_strings(backwards, len(terms.flat) - ends, terms.lengths)
    sizes = _last_character(terms.flat, ends)
    values = masked_words(terms.flat, ends - sizes, sizes)
    _, characters = np.unique(values, return_inverse=True)
    firsts = np.flatnonzero(is_first(characters[order]))
    counts = np.diff(np.append(firsts, len(order)))
    shifts = np.maximum(np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64) - 16, 0)
    ranks = np.empty(len(order), np.uint16)
    places = np.arange(len(order)) - np.repeat(firsts, counts)
    ranks[order] = places >> np.repeat(shifts, counts)
    return Endings(characters.astype(np.uint16), sizes, ranks, order, firsts, shifts)


def _last_character(flat: U8, ends: Int) -> Int:
    """How many bytes the character before each end has."""
    sizes = np.ones(len(ends), np.int64)
    for _ in range(3):
        sizes += (flat[ends - sizes] & 0xC0) == 0x80
    return sizes


def ending_rows(terms: Vocabulary, endings: Endings) -> Iterator[SegmentRow]:
    """Terms read backwards, in order, so that the rank of an ending can be found."""
    lengths = terms.lengths[endings.order]
    after = (terms.starts + terms.lengths)[endings.order]
    ends = np.cumsum(lengths + 1)
    texts = np.full(int(ends[-1]) if len(ends) else 0, 10, np.uint8)
    backwards = np.repeat(after + ends - lengths - 2, lengths) - spans(ends - lengths - 1, lengths)
    texts[spans(ends - lengths - 1, lengths)] = terms.flat[backwards]
    data, places = texts.tobytes(), [0, *ends.tolist()]
    edges = [*endings.firsts.tolist(), len(lengths)]
    is_single = (lengths == endings.sizes[endings.order]).tolist()
    for first, last, shift in zip(edges, edges[1:], endings.shifts.tolist(), strict=False):
        if last - first == 1 and is_single[first]:
            continue
        for start in range(first, last, ENDINGS_PER_ROW):
            stop = min(start + ENDINGS_PER_ROW, last)
            head = (start - first).to_bytes(4, "big") + bytes([shift])
            names = data[places[start] : places[stop] - 1]
            key = data[places[start] : places[start + 1] - 1]
            yield SegmentRow(Kind.ENDING, key, 0, head + names)


def junction_rows(text: Tokenised, endings: Endings, size: int) -> Iterator[SegmentRow]:
    """All places where a token meets the next, in order, of a segment with so many messages."""
    part = 0
    heads = _Heads(text.terms, text.gap)
    for places in _portions(text, endings, heads):
        left = (text.sequence[places] & np.uint32(text.gap - 1)) - np.uint32(1)
        order = _sorted_places(text, places, endings.characters[left])
        places, left = places[order], left[order]
        for row in _rows(text, endings, places, left):
            yield row._replace(part=part)
            part += 1
        yield from _head_rows(text, endings, heads, places, left, size)


class _Heads:
    """The first character of every term, as a number that sorts like it, after a gap or not."""

    def __init__(self, terms: Vocabulary, gap: int) -> None:
        leads = terms.flat[terms.starts]
        self.sizes = 1 + (leads >= 0xC0) + (leads >= 0xE0) + (leads >= 0xF0).astype(np.int64)
        values = masked_words(terms.flat, terms.starts, self.sizes)
        _, first = np.unique(values, return_inverse=True)
        self._numbers = np.append(first, 0)
        self._count = int(first.max()) + 1 if len(first) else 0
        self._gap = gap

    def of(self, following: U32) -> Int:
        """Numbers of what follows some places."""
        terms = (following & np.uint32(self._gap - 1)).astype(np.int64) - 1
        numbers: Int = self._numbers[terms] + self._count * (following >= self._gap)
        return numbers


def _portions(text: Tokenised, endings: Endings, heads: _Heads) -> Iterator[Int]:
    """All places, so many at once that they can be sorted in little memory."""
    characters = np.append(endings.characters + np.uint16(1), np.uint16(0))
    found = np.empty(len(text.sequence), np.uint16)
    for at in range(0, len(found), _AT_ONCE):
        terms = text.sequence[at : at + _AT_ONCE] & np.uint32(text.gap - 1)
        found[at : at + _AT_ONCE] = characters[terms.astype(np.int64) - 1]
    found[:-1][text.sequence[1:] == 0] = 0
    counts = np.cumsum(np.bincount(found, minlength=2)[1:])
    first = 1
    while first <= len(counts):
        before = counts[first - 2] if first > 1 else 0
        last = max(first, int(np.searchsorted(counts, before + _AT_ONCE, side="right")))
        places = np.flatnonzero((found >= first) & (found <= last))
        yield from _split(text, places, heads)
        first = last + 1


def _split(text: Tokenised, places: Int, heads: _Heads) -> Iterator[Int]:
    """Places of one character may be too many by themselves: split them by what follows."""
    if len(places) <= 2 * _AT_ONCE:
        yield places
        return
    numbers = heads.of(text.sequence[places + 1])
    shares = (np.cumsum(np.bincount(numbers)) // _AT_ONCE)[numbers]
    for share in np.unique(shares):
        yield places[shares == share]


def _head_rows(
    text: Tokenised, endings: Endings, heads: _Heads, places: Int, left: U32, size: int
) -> Iterator[SegmentRow]:
    """The messages of two characters that meet very often, ready."""
    numbers = heads.of(text.sequence[places + 1])
    numbers += endings.characters[left].astype(np.int64) << 32
    edges = np.append(np.flatnonzero(is_first(numbers)), len(numbers))
    for at in np.flatnonzero(np.diff(edges) > READY_FROM).tolist():
        first, last = int(edges[at]), int(edges[at + 1])
        own, following = int(left[first]), int(text.sequence[places[first] + 1])
        term = (following & (text.gap - 1)) - 1
        end = int(text.terms.starts[own] + text.terms.lengths[own])
        start = int(text.terms.starts[term])
        key = text.terms.flat[end - int(endings.sizes[own]) : end].tobytes()
        key += AFTER_SPACE if following >= text.gap else NEXT
        key += text.terms.flat[start : start + int(heads.sizes[term])].tobytes()
        mask = np.zeros(size, np.bool_)
        mask[text.docs[places[first:last]]] = True
        yield SegmentRow(Kind.HEAD, key, 0, encode_mask(mask))


def _sorted_places(text: Tokenised, places: Int, characters: U16) -> Int:
    """The order of places by the last character, then by one following token after the other."""
    bits = np.uint64(text.gap.bit_length())
    values = characters.astype(np.uint64) << bits
    values |= text.sequence[places + 1]
    ordered, order = sort_packed(values)
    first = is_first(ordered)
    tied = np.arange(len(order))
    for ahead in range(2, AHEAD + 1):
        tied = tied[~(first & np.append(first[1:], True))]
        if not len(tied):
            break
        runs = np.cumsum(first)[~(first & np.append(first[1:], True))]
        values = np.cumsum(is_first(runs)).astype(np.uint64) << bits
        values |= text.sequence[places[order[tied]] + ahead]
        ordered, moved = sort_packed(values)
        order[tied] = order[tied[moved]]
        first = is_first(ordered)
    return order


def _rows(text: Tokenised, endings: Endings, places: Int, left: U32) -> Iterator[SegmentRow]:
    docs = text.docs[places].astype("<u2").tobytes()
    ranks = endings.ranks[left].astype("<u2").tobytes()
    borders, ends = _borders(text, endings, places, left)
    for first in range(0, len(places), PER_ROW):
        last = min(first + PER_ROW, len(places))
        group, after = first // PER_GROUP, -(-last // PER_GROUP)
        names = borders[ends[group] : ends[after] - 1]
        key = borders[ends[group] : ends[group + 1] - 1]
        own = ranks[2 * first : 2 * last]
        mark = UNRANKED if own.count(0) == len(own) else RANKED
        value = mark + len(names).to_bytes(3, "big") + names + docs[2 * first : 2 * last]
        yield SegmentRow(Kind.JUNCTION, key, 0, value + own if mark == RANKED else value)


def _borders(text: Tokenised, endings: Endings, places: Int, left: U32) -> tuple[bytes, list[int]]:
    """For every group a string above all that is before it and not above what is in it.

    Returns them joined, and where each begins; one more for the end.
    """
    heads = np.arange(0, len(places), PER_GROUP)
    own, other = places[heads], places[np.maximum(heads - 1, 0)]
    sizes = endings.sizes[left[heads]]
    ends = text.terms.starts[left[heads]] + text.terms.lengths[left[heads]]
    pieces = [(ends - sizes, sizes, np.zeros(len(heads), np.int64))]
    same = endings.characters[left[heads]] == endings.characters[left[np.maximum(heads - 1, 0)]]
    for ahead in range(1, AHEAD + 1):
        following = text.sequence[own + ahead].astype(np.int64)
        wanted = (following > 0) & (same | (ahead == 1))
        terms = np.maximum((following & (text.gap - 1)) - 1, 0)
        marks = np.where(following >= text.gap, 2, 1) * wanted
        pieces.append((text.terms.starts[terms], text.terms.lengths[terms] * wanted, marks))
        same &= following == text.sequence[other + ahead]
    return _written(text.terms.flat, pieces, len(heads))


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
