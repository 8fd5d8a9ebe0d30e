"""Properties that hold for every text."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from postroom.mail.text.fold import fold
from postroom.mail.text.terms import count_terms, mark, question_terms, terms_of, words

TEXTS = st.text(max_size=200)


@given(TEXTS)
def test_the_terms_of_a_query_are_among_the_terms_of_the_same_text(text):
    assert set(terms_of(text)) <= set(count_terms(text))
    assert set(question_terms(text)) <= set(terms_of(text))


@given(TEXTS)
def test_words_have_correct_positions_in_order(text):
    places = [(word.start, word.end) for word in words(text)]

    assert places == sorted(places)
    assert all(0 <= start < end <= len(text) for start, end in places)


@given(TEXTS, TEXTS, TEXTS)
def test_a_phrase_that_a_text_has_is_marked(before, phrase, after):
    text = f"{before} {phrase} {after}"
    folded = fold(phrase)

    marked = mark(text, set(), [folded] if folded else [], 1_000)

    assert bool(folded) == ("<mark>" in marked)
    assert all(fold(html.unescape(found)) for found in re.findall("<mark>(.*?)</mark>", marked))


@given(TEXTS, TEXTS)
def test_marking_only_adds_marks(text, asked):
    marked = mark(text, set(terms_of(asked)), (), 1_000)

    plain = html.unescape(re.sub("</?mark>", "", marked))
    assert " ".join(text.split()) == plain
    assert set() == set(re.findall("<[^>]*>", marked)) - {"<mark>", "</mark>"}
