"""Distinct terms, end to end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from postroom.store.search.arrays import PADDING, U8, Int, spans

BORDER = 10
"""The byte after every term and every text, which no term has."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Distinct terms, mostly in the order of their bytes; a term is known by its place."""

    flat: U8
    starts: Int
    lengths: Int

    def __len__(self) -> int:
        return len(self.starts)


def packed(flat: U8, starts: Int, lengths: Int) -> Vocabulary:
    """The strings alone, each followed by a border."""
    ends = np.cumsum(lengths + 1)
    alone = np.full((int(ends[-1]) if len(ends) else 0) + len(PADDING), BORDER, np.uint8)
    own = ends - lengths - 1
    alone[spans(own, lengths)] = flat[spans(starts, lengths)]
    return Vocabulary(alone, own, lengths)
