"""Entries of rows: the messages whose ranks are wanted, few and many, of one segment and of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.store.search import entries as entries_module
from postroom.store.search.entries import ALL_RANKS, Entries, Ranks
from postroom.store.search.junction_rows import RANKED
from postroom.store.search.masks import Marks, places_of
from postroom.store.search.segments import Segment
from postroom.store.search.shelf import Shelf

unhurried = settings(deadline=None)
SIZE, MOST = 200, 1 << 16
SHELF = Shelf([Segment(number, SIZE, 0, 9, 2) for number in (3, 5, 8)])
Pairs = list[tuple[int, int]]
edges = st.integers(0, MOST) | st.sampled_from([0, 1, MOST - 1, MOST])
ranks = st.integers(0, MOST - 1) | st.sampled_from([0, MOST - 1])
pairs = st.lists(st.tuples(st.integers(0, SIZE - 1), ranks), max_size=30)


@st.composite
def wanted(draw: st.DrawFn) -> Ranks:
    low, high = sorted((draw(edges), draw(edges)))
    return (low, high, True) if low < high else (0, MOST, True)


def row(own: Pairs) -> entries_module._Row:
    """A row of one group."""
    docs = np.array([doc for doc, _ in own], "<u2").tobytes()
    levels = np.array([rank for _, rank in own], "<u2").tobytes()
    return entries_module._Row(bytes([RANKED, 0, 0, 1]) + b"x" + docs + levels)


def marked(owns: list[tuple[Ranks, Pairs]]) -> set[int]:
    taken, marks = Entries(), Marks(SHELF)
    for segment, (limits, own) in zip(SHELF.segments, owns, strict=True):
        taken.begin(segment.number, limits)
        taken.take(row(own), 0, 2 * len(own))
    taken.mark(marks)
    return set(places_of(marks.mask()).tolist())


def expected(owns: list[tuple[Ranks, Pairs]]) -> set[int]:
    return {
        SHELF.first_word(segment.number) * 64 + doc
        for segment, (limits, own) in zip(SHELF.segments, owns, strict=True)
        for doc, rank in own
        if limits[0] <= rank < limits[1]
    }


@unhurried
@given(st.lists(st.tuples(wanted(), pairs), min_size=3, max_size=3), st.sampled_from([0, 500]))
def test_ranks_that_are_wanted_are_marked(owns: list[tuple[Ranks, Pairs]], many: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries_module, "_MANY", many)

        assert expected(owns) == marked(owns)


@unhurried
@given(st.lists(pairs, min_size=3, max_size=3))
def test_where_no_rank_is_wanted_all_are_marked(owns: list[Pairs]) -> None:
    limited = [(ALL_RANKS, own) for own in owns]

    assert expected(limited) == marked(limited)
