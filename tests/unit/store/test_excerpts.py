"""An excerpt shows the match, at any position in the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postroom.mail.text.fold import fold
from postroom.model.mail.storage import FIELD_BORDER
from postroom.store.sql.messages import message_search
from postroom.store.sql.messages.message_search import excerpt

ODD = (
    "ß", "ﬁ", "İ", "ﷺ", "½", "¨", "…", "ſ", "ΑΣ", "\u00ad", "\u200b", "\u00a0", " ", "  ", "\r\n",
    "e\u0301", "a\u0327\u0301", "\u0301", "か\u3099", "ｶﾞ", "日本", "\u1100\u1161\u11a8", "각",
    "\u0b47\u0b57", "word", "Needle", "x",
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(st.sampled_from(ODD), min_size=1, max_size=300).map("".join),
    first=st.integers(0, 2_000),
    length=st.integers(1, 150),
)
def test_an_excerpt_has_the_match_in_it(text: str, first: int, length: int) -> None:
    folded = fold(text)
    first %= len(folded) or 1
    q = fold(folded[first : first + length])
    if not q or q not in folded:
        return

    shown = excerpt(folded, q, (text,))

    assert q in fold(shown)
    assert len(shown) <= 160


@pytest.mark.parametrize("before", ["word " * 60_000, "ß wörter " * 30_000, "ß" * 300_000])
def test_a_match_far_down_a_long_text_is_shown(before: str) -> None:
    text = f"{before}Needle and more"

    assert excerpt(fold(text), "needle", (text,)).endswith("Needle and more")


@pytest.mark.parametrize("before", ["İSTANBUL İLİ " * 20, "İSTANBUL İLİ " * 60, "İ" * 200])
def test_characters_longer_in_lower_case_do_not_shift_the_match(before: str) -> None:
    text = f"{before}Needle {'word ' * 50}"

    assert "Needle" in excerpt(fold(text), "needle", (text,))


def test_a_long_match_is_shown_from_its_first_letter_to_its_last() -> None:
    words = " ".join(f"Word{number:02}" for number in range(40))
    q = fold(words[70:190])

    assert words[70:190] in excerpt(fold(words), q, (words,))


def test_a_match_longer_than_an_excerpt_is_shown_from_its_first_letter() -> None:
    words = " ".join(f"Word{number:02}" for number in range(40))

    shown = excerpt(fold(words), fold(words[70:270]), (words,))

    assert words[70:229] + "…" == shown


def test_invisible_characters_do_not_displace_the_match() -> None:
    text = "Before Hello" + "\u200b" * 500 + "World after"

    assert "HelloWorld" in excerpt(fold(text), "helloworld", (text,))


def test_the_field_that_matches_first_is_shown() -> None:
    fields = ("Re: Straße", "die Straße", "ana@example.com")
    searchable = FIELD_BORDER.join(map(fold, fields))

    assert "die Straße" == excerpt(searchable, "die strasse", fields)
    assert "Re: Straße" == excerpt(searchable, "asse", fields)


def test_a_long_text_is_folded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Grüße " + "wort für wort " * 14_000 + "Needle"
    folded, pieces = fold(text), list[str]()
    monkeypatch.setattr(message_search, "fold", lambda part: pieces.append(part) or fold(part))

    assert excerpt(folded, "needle", (text,)).endswith("Needle")
    assert len(pieces) < 100
    assert sum(map(len, pieces)) < 2 * len(text)
