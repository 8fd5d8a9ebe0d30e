"""Masks of bits, beside plain sets of places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.store.search import masks
from postroom.store.search.formats import NEWEST
from postroom.store.search.masks import (
    WORD_BITS,
    Counts,
    Marks,
    Mask,
    keep_between,
    last_places,
    places_of,
)
from postroom.store.search.rows import encode_places
from postroom.store.search.segments import Segment
from postroom.store.search.shelf import Shelf

unhurried = settings(deadline=None)
SIZES = (1, 63, 64, 65, 130, 1000)
SHELF = Shelf([Segment(number, size, 0, 0, NEWEST) for number, size in enumerate(SIZES, start=7)])

Places = dict[int, set[int]]


@st.composite
def found(draw: st.DrawFn) -> Places:
    return {
        segment.number: draw(st.sets(st.integers(0, segment.size - 1)))
        for segment in SHELF.segments
    }


def mask_of(places: Places) -> Mask:
    marks = Marks(SHELF)
    for number, own in places.items():
        marks.add_places(number, np.array(sorted(own), "<u2").tobytes())
    return marks.mask()


def read(mask: Mask) -> Places:
    return {
        segment.number: set(places_of(SHELF.part(mask, segment.number)).tolist())
        for segment in SHELF.segments
    }


@unhurried
@given(found(), found())
def test_sets_that_are_written_either_way_are_joined(one: Places, other: Places) -> None:
    marks = Marks(SHELF)
    for segment in SHELF.segments:
        for places in (one[segment.number], other[segment.number]):
            marks.add(segment.number, encode_places(np.array(sorted(places), "<u2"), segment.size))

    assert read(marks.mask()) == {number: one[number] | other[number] for number in one}


@unhurried
@given(found())
def test_many_places_are_set_like_few(places: Places) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "_SPARSE", 0)
        few = mask_of(places)
        patch.setattr(masks, "_SPARSE", 1 << 30)

        assert (mask_of(places) == few).all()
    assert read(few) == places


def test_everything_ends_where_the_segment_does() -> None:
    assert read(SHELF.all()) == {s.number: set(range(s.size)) for s in SHELF.segments}
    assert SHELF.holders(SHELF.none()) == []


@unhurried
@given(found(), st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 60))
def test_what_is_between_two_places_is_kept_counted_and_found(
    places: Places, one: int, other: int, count: int
) -> None:
    for segment in SHELF.segments:
        first, last = sorted((min(one, segment.size), min(other, segment.size)))
        inside = sorted(place for place in places[segment.number] if first <= place < last)
        mask = mask_of(places)
        word, part = SHELF.first_word(segment.number), SHELF.part(mask, segment.number)
        counts = Counts(mask, SHELF.edges)
        edges = np.array([word * WORD_BITS + first, word * WORD_BITS + last])

        assert counts.between_edges == [len(own) for own in places.values()]
        assert np.diff(counts.before(edges)).tolist() == [len(inside)]
        assert counts.between(word, last) - counts.between(word, first) == len(inside)
        assert last_places(part, first, last, count).tolist() == inside[-count:]
        keep_between(part, first, last)
        assert read(mask) == places | {segment.number: set(inside)}
