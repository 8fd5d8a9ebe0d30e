"""Boundary entries: the messages whose ranks match, in one segment and in several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.store.search.postings import boundary_postings as entries_module
from postroom.store.search.postings.boundary_postings import ALL_RANKS, Entries, Ranks
from postroom.store.search.postings.boundary_writer import HAS_RANKS
from postroom.store.search.segments.segment import Segment
from postroom.store.search.segments.snapshot import MaskBuilder, Snapshot, positions_of

unhurried = settings(deadline=None)
SIZE, RANKS_END = 200, 1 << 16
SNAPSHOT = Snapshot([Segment(number, SIZE, 0, 9, 2) for number in (3, 5, 8)])
Pairs = list[tuple[int, int]]
edges = st.integers(0, RANKS_END) | st.sampled_from([0, 1, RANKS_END - 1, RANKS_END])
ranks = st.integers(0, RANKS_END - 1) | st.sampled_from([0, RANKS_END - 1])
pairs = st.lists(st.tuples(st.integers(0, SIZE - 1), ranks), max_size=30)


@st.composite
def query(draw: st.DrawFn) -> Ranks:
    low, high = sorted((draw(edges), draw(edges)))
    return (low, high, True) if low < high else (0, RANKS_END, True)


def row(own: Pairs) -> entries_module._Row:
    """A row of one group."""
    docs = np.array([doc for doc, _ in own], "<u2").tobytes()
    levels = np.array([rank for _, rank in own], "<u2").tobytes()
    return entries_module._Row(bytes([HAS_RANKS, 0, 0, 1]) + b"x" + docs + levels)


def marked(entries: list[tuple[Ranks, Pairs]]) -> set[int]:
    collected, builder = Entries(), MaskBuilder(SNAPSHOT)
    for segment, (limits, own) in zip(SNAPSHOT.segments, entries, strict=True):
        collected.begin(segment.number, limits)
        collected.collect(row(own), 0, 2 * len(own))
    collected.mark(builder)
    return set(positions_of(builder.mask()).tolist())


def expected(entries: list[tuple[Ranks, Pairs]]) -> set[int]:
    return {
        SNAPSHOT.first_word(segment.number) * 64 + doc
        for segment, (limits, own) in zip(SNAPSHOT.segments, entries, strict=True)
        for doc, rank in own
        if limits[0] <= rank < limits[1]
    }


@unhurried
@given(st.lists(st.tuples(query(), pairs), min_size=3, max_size=3), st.sampled_from([0, 500]))
def test_entries_with_matching_ranks_are_marked(
    entries: list[tuple[Ranks, Pairs]], one_by_one: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries_module, "_ONE_BY_ONE", one_by_one)

        assert expected(entries) == marked(entries)


@unhurried
@given(st.lists(pairs, min_size=3, max_size=3))
def test_all_entries_are_marked_if_every_rank_matches(entries: list[Pairs]) -> None:
    limited = [(ALL_RANKS, own) for own in entries]

    assert expected(limited) == marked(limited)
