"""Everything and nothing cannot be taken for each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.model.view import (
    EVERYTHING,
    NOTHING,
    Everything,
    Only,
    View,
    only,
    view_names,
    view_of,
)
from postroom.surfaces.to_json import to_json

NAMES = st.text("abc", min_size=1, max_size=2)
VIEWS = st.one_of(st.just(EVERYTHING), st.lists(NAMES, max_size=4).map(view_of))


@pytest.mark.parametrize("view", [EVERYTHING, NOTHING, only("a")])
def test_a_view_has_no_truth(view: View) -> None:
    with pytest.raises(TypeError, match="ask what it sees"):
        _ = view or only("b")
    with pytest.raises(TypeError, match="ask what it sees"):
        _ = not view


def test_nothing_is_not_everything() -> None:
    assert NOTHING != EVERYTHING
    assert not NOTHING.sees("a")
    assert EVERYTHING.sees("a")
    assert ([], None) == (to_json(NOTHING), to_json(EVERYTHING))
    assert (NOTHING, EVERYTHING) == (view_of([]), view_of(None))


@given(VIEWS, st.lists(NAMES, max_size=4))
def test_a_narrowed_view_sees_what_both_see(view: View, some: list[str]) -> None:
    narrowed = view.narrowed_to(some)

    for name in (*some, "a", "ab", "c"):
        assert (view.sees(name) and name in some) == narrowed.sees(name)


@given(VIEWS, VIEWS)
def test_who_is_limited_is_shown_only_what_is_wholly_theirs(view: View, other: View) -> None:
    is_whole = isinstance(other, Only) and bool(other.ids) and all(map(view.sees, other.ids))

    assert (isinstance(view, Everything) or is_whole) == view.covers(other)


@given(VIEWS)
def test_a_view_is_written_and_read_again(view: View) -> None:
    assert view == view_of(view_names(view))
    assert hash(view) == hash(view_of(view_names(view)))


def test_a_view_is_shown_in_the_order_in_which_it_was_named() -> None:
    assert ["b", "a"] == to_json(view_of(["b", "a", "b"]))
    assert only("a", "b") == only("b", "a")


@pytest.mark.parametrize("text", ["", "abc", b"abc"])
def test_one_text_is_no_view(text: Any) -> None:
    """It would be a view of its letters."""
    with pytest.raises(TypeError, match="not one text"):
        view_of(text)


@given(VIEWS, VIEWS, NAMES)
def test_what_is_gone_counts_only_for_who_had_it(view: Any, other: Any, gone: str) -> None:
    """A removal changes nothing about what a view covers, except that nothing is left of some."""
    if not isinstance(view, Only) or not isinstance(other, Only):
        return
    left = Only(tuple(one for one in view.named if one != gone))
    had = replace(left, gone=frozenset({gone}) & view.ids)

    assert had == left
    assert had.covers(other) == (view.covers(other) and other.ids != {gone})
    assert left.covers(other) == (view.covers(other) and gone not in other.ids)
