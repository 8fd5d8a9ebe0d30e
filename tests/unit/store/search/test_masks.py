"""Masks compared with plain sets of doc ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.store.search.segments import snapshot as masks
from postroom.store.search.segments.segment import CURRENT_FORMAT, Segment
from postroom.store.search.segments.snapshot import (
    WORD_BITS,
    Mask,
    MaskBuilder,
    PrefixCounts,
    Snapshot,
    encode_doc_ids,
    keep_range,
    last_positions,
    positions_of,
)

unhurried = settings(deadline=None)
DEFAULT_POLICY = (1, 63, 64, 65, 130, 1000)
SNAPSHOT = Snapshot(
    [
        Segment(number, size, 0, 0, CURRENT_FORMAT)
        for number, size in enumerate(DEFAULT_POLICY, start=7)
    ]
)

DocIds = dict[int, set[int]]


@st.composite
def found(draw: st.DrawFn) -> DocIds:
    return {
        segment.number: draw(st.sets(st.integers(0, segment.size - 1)))
        for segment in SNAPSHOT.segments
    }


def mask_of(doc_ids: DocIds) -> Mask:
    builder = MaskBuilder(SNAPSHOT)
    for number, own in doc_ids.items():
        builder.add_doc_ids(number, np.array(sorted(own), "<u2").tobytes())
    return builder.mask()


def read(mask: Mask) -> DocIds:
    return {
        segment.number: set(positions_of(SNAPSHOT.part(mask, segment.number)).tolist())
        for segment in SNAPSHOT.segments
    }


@unhurried
@given(found(), found())
def test_sets_in_both_encodings_are_joined(one: DocIds, other: DocIds) -> None:
    builder = MaskBuilder(SNAPSHOT)
    for segment in SNAPSHOT.segments:
        for doc_ids in (one[segment.number], other[segment.number]):
            builder.add(
                segment.number, encode_doc_ids(np.array(sorted(doc_ids), "<u2"), segment.size)
            )

    assert read(builder.mask()) == {number: one[number] | other[number] for number in one}


@unhurried
@given(found())
def test_many_bits_are_set_like_few(doc_ids: DocIds) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "_SPARSE_BYTES", 0)
        few = mask_of(doc_ids)
        patch.setattr(masks, "_SPARSE_BYTES", 1 << 30)

        assert (mask_of(doc_ids) == few).all()
    assert read(few) == doc_ids


def test_a_full_mask_ends_with_the_segment() -> None:
    assert read(SNAPSHOT.all()) == {s.number: set(range(s.size)) for s in SNAPSHOT.segments}
    assert SNAPSHOT.segments_in(SNAPSHOT.none()) == []


@unhurried
@given(found(), st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 60))
def test_a_range_of_doc_ids_is_kept_counted_and_found(
    doc_ids: DocIds, one: int, other: int, count: int
) -> None:
    for segment in SNAPSHOT.segments:
        first, last = sorted((min(one, segment.size), min(other, segment.size)))
        inside = sorted(doc_id for doc_id in doc_ids[segment.number] if first <= doc_id < last)
        mask = mask_of(doc_ids)
        word, part = SNAPSHOT.first_word(segment.number), SNAPSHOT.part(mask, segment.number)
        counts = PrefixCounts(mask, SNAPSHOT.word_offsets)
        edges = np.array([word * WORD_BITS + first, word * WORD_BITS + last])

        assert counts.by_segment == [len(own) for own in doc_ids.values()]
        assert np.diff(counts.before(edges)).tolist() == [len(inside)]
        assert counts.between(word, last) - counts.between(word, first) == len(inside)
        assert last_positions(part, first, last, count).tolist() == inside[-count:]
        keep_range(part, first, last)
        assert read(mask) == doc_ids | {segment.number: set(inside)}
