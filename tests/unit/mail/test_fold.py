from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mail.text.fold import fold


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("CAFÉ", "café"),
        ("Straße", "strasse"),
        ("  a \t\r\n b\u00a0c ", "a b c"),
        ("in\u00advoice", "invoice"),
        ("zero\u200bwidth", "zerowidth"),
        ("ＦＵＬＬ", "full"),
        ("ﬁle", "file"),
        ("İ", "i̇"),
        ("100%_\\*", "100%_\\*"),
        ("\u200b\u00ad", ""),
    ],
)
def test_text_that_looks_equal_folds_equally(text: str, folded: str) -> None:
    assert folded == fold(text)


def test_accents_count() -> None:
    assert fold("resume") != fold("résumé")


@given(st.text())
def test_folding_is_idempotent(text: str) -> None:
    once = fold(text)

    assert once == fold(once)


@given(st.text(st.characters(codec="ascii")))
def test_the_fast_path_agrees_with_the_long_one(text: str) -> None:
    assert fold(text) == fold(text + "\u00ad")


@given(st.lists(st.text(), min_size=2))
def test_lines_are_folded_as_one_text(lines: list[str]) -> None:
    """Lines are joined with carriage returns, which are white space too, and folded at once."""
    assert fold("\r".join(lines)) == fold("\n".join(lines))
