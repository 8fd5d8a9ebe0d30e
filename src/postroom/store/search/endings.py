"""How terms end: their last characters, and the rows that rank what is before them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from postroom.store.search.arrays import (
    PADDING,
    U8,
    U16,
    Int,
    is_first,
    masked_words,
    sort_strings,
    spans,
)
from postroom.store.search.kinds import Kind, SegmentRow
from postroom.store.search.vocabulary import Vocabulary

ENDINGS_PER_ROW = 128


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
