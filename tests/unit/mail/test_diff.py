"""The words that differ between two versions of a text."""

from __future__ import annotations

import random
from time import perf_counter

import pytest

from postroom.mail.text.diff import word_diff


@pytest.mark.parametrize(("before", "after", "expected"), [
    ("", "", []),
    ("Same.", "Same.", [("same", "Same.")]),
    ("Ten per cent.", "Two per cent.",
     [("removed", "Ten"), ("added", "Two"), ("same", " per cent.")]),
    ("a\nb\nc\n", "a\nc\n", [("same", "a\n"), ("removed", "b\n"), ("same", "c\n")]),
    ("Pay 20.", "Pay 20 now.", [("same", "Pay 20"), ("added", " now"), ("same", ".")]),
    ("", "new", [("added", "new")]),
    ("old", "", [("removed", "old")]),
])  # fmt: skip
def test_words_that_were_removed_and_added(
    before: str, after: str, expected: list[tuple[str, str]]
) -> None:
    assert expected == word_diff(before, after)


def test_both_versions_can_be_read_from_the_changes() -> None:
    chance = random.Random(7)
    for _ in range(500):
        before, after = ("".join(chance.choices("ab \n", k=chance.randrange(40))) for _ in range(2))
        changes = word_diff(before, after)
        assert before == "".join(c.text for c in changes if c.kind != "added")
        assert after == "".join(c.text for c in changes if c.kind != "removed")


def test_long_unrelated_texts_are_compared_quickly() -> None:
    started = perf_counter()

    changes = word_diff("a b\n" * 25_000 + "x", "b a\n" * 25_000 + "y")

    assert ["removed", "added"] == [change.kind for change in changes]
    assert perf_counter() - started < 5
