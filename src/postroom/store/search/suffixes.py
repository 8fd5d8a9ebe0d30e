"""Every suffix of every term, in order, some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from postroom.store.search.arrays import U8, U16, U32, Int, is_first, sort_strings
from postroom.store.search.vocabulary import BORDER, Vocabulary

_AT_ONCE = 1 << 17
_NONE = 0xFFFF
"""No two bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class Suffixes:
    """Some suffixes in order: where each starts, how long it is, whose it is."""

    flat: U8
    starts: U32
    lengths: U8
    terms: U32


def sorted_suffixes(terms: Vocabulary) -> Iterator[Suffixes]:
    """All suffixes; all that share their first two bytes come together."""
    heads = _heads(terms.flat)
    counts = np.bincount(heads, minlength=_NONE + 1)[:_NONE]
    for first, last in _even_ranges(counts, _AT_ONCE):
        own = np.flatnonzero((heads >= first) & (heads < last))
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


def _heads(flat: U8) -> U16:
    """The first two bytes of the suffix from each place on, where there is one."""
    heads = np.full(len(flat), _NONE, np.uint16)
    heads[:-1] = flat[:-1]
    heads[:-1] <<= 8
    heads[:-1] |= flat[1:]
    heads[(flat == BORDER) | ((flat & 0xC0) == 0x80)] = _NONE
    return heads


def _even_ranges(counts: Int, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of numbers that have so many together, or hardly more."""
    shares = np.cumsum(counts) // most
    edges = [*np.flatnonzero(is_first(shares)).tolist(), len(counts)]
    yield from pairwise(edges)
