"""Operators in a search text: known ones become arguments, the rest stays text."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.operations.agent.finding import split_operators

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
WORDS = st.lists(
    st.sampled_from(["invoice", "2026", "re:", "über", "a:b", "(x)", "-y"]), max_size=4
)
OPERATORS = {
    "from:ana": {"from": "ana"},
    "FROM:ana@example.com": {"from": "ana@example.com"},
    'from:"Ana Lima"': {"from": "Ana Lima"},
    "to:bo@example.com": {"to": "bo@example.com"},
    "cc:bo": {"to": "bo"},
    'subject:"net 30"': {"subject": "net 30"},
    "label:Work": {"labels": ["Work"]},
    "in:Archive": {"mailbox": "Archive"},
    "in:anywhere": {"mailbox": "*"},
    "is:unread": {"unread": True},
    "is:read": {"unread": False},
    "is:starred": {"flags": ["flagged"]},
    "has:attachment": {"has_attachment": True},
    "after:2026-01-05": {"after_date": "2026-01-05"},
    "after:2026/1/5": {"after_date": "2026-01-05"},
    "since:yesterday": {"after_date": "2026-11-16"},
    "before:2026-02-28": {"before_date": "2026-02-28"},
    "newer_than:7d": {"after_date": "2026-11-10T12:00:00Z"},
    "older_than:1y": {"before_date": "2025-11-17T12:00:00Z"},
    "newer_than:6h": {"after_date": "2026-11-17T06:00:00Z"},
    "after:3d": {"after_date": "2026-11-14T12:00:00Z"},
    "from:(Ana Lima)": {"from": "Ana Lima"},
    "from: ana": {"from": "ana"},
    'subject: "net 30"': {"subject": "net 30"},
    "on:2026-02-28": {"after_date": "2026-02-28", "before_date": "2026-03-01"},
}
TEXT = (
    "re: hello", "http://example.com/a", "12:30", "after:soon", "before:2026-02-31", "is:purple",
    "has:fun", 'from:""', "from:", "unknown:thing", "notfrom:ana x", "older_than:many",
)  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), OPERATORS.items())
def test_an_operator_becomes_an_argument(text: str, expected: dict[str, object]) -> None:
    assert ("", expected) == split_operators(text, NOW)


@pytest.mark.parametrize("text", TEXT)
def test_unknown_operators_stay_text(text: str) -> None:
    assert (text, {}) == split_operators(text, NOW)


@given(st.sampled_from(sorted(OPERATORS)), WORDS, WORDS)
def test_the_words_around_an_operator_stay(
    operator: str, before: list[str], after: list[str]
) -> None:
    text, found = split_operators(" ".join([*before, operator, *after]), NOW)

    assert OPERATORS[operator] == found
    assert [*before, *after] == text.split()


@given(st.permutations(["from:ana", "is:unread", "has:attachment", "label:A", "label:B"]))
def test_operators_may_come_in_any_order(operators: list[str]) -> None:
    text, found = split_operators(" ".join(operators), NOW)

    assert "" == text
    assert {"A", "B"} == set(found.pop("labels"))
    assert {"from": "ana", "unread": True, "has_attachment": True} == found


@given(st.text(max_size=200))
def test_any_text_is_accepted(text: str) -> None:
    rest, found = split_operators(text, NOW)

    assert isinstance(rest, str)
    assert found or rest == text or "body:" in text.lower()


@pytest.mark.parametrize(
    ("text", "rest", "expected"),
    [
        ("filename:offer.pdf", '"offer.pdf"', {"has_attachment": True}),
        ('terms body:"net 30"', 'terms "net 30"', {}),
        ("from: is:unread", "from:", {"unread": True}),
        ("re: from: ana", "re:", {"from": "ana"}),
    ],
)
def test_an_operator_may_leave_text(text: str, rest: str, expected: dict[str, object]) -> None:
    assert (rest, expected) == split_operators(text, NOW)
