"""Views: everything, nothing, and selections cannot be confused."""

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
def test_a_view_has_no_truth_value(view: View) -> None:
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
def test_a_narrowed_view_is_the_intersection(view: View, some: list[str]) -> None:
    narrowed = view.narrowed_to(some)

    for name in (*some, "a", "ab", "c"):
        assert (view.sees(name) and name in some) == narrowed.sees(name)


@given(VIEWS, VIEWS)
def test_a_limited_view_shows_only_objects_entirely_inside_it(view: View, other: View) -> None:
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
def test_a_single_string_is_no_view(text: Any) -> None:
    """It would be a view of its characters."""
    with pytest.raises(TypeError, match="not one text"):
        view_of(text)


@given(VIEWS, VIEWS, NAMES)
def test_removed_objects_count_only_in_views_that_had_them(
    view: Any, other: Any, gone: str
) -> None:
    """A removal does not change what a view covers, except that nothing may be left of it."""
    if not isinstance(view, Only) or not isinstance(other, Only):
        return
    left = Only(tuple(one for one in view.named if one != gone))
    had = replace(left, gone=frozenset({gone}) & view.ids)

    assert had == left
    assert had.covers(other) == (view.covers(other) and other.ids != {gone})
    assert left.covers(other) == (view.covers(other) and gone not in other.ids)
