"""The excerpt of a text that a keyword search matched."""

from __future__ import annotations

import pytest

from postroom.mail.text.fold import fold
from postroom.mail.text.terms import around, mark, terms_of


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("Two invoices came.", "Invoice", "Two <mark>invoices</mark> came."),
        ("北京的天气很好", "天气", "北京的<mark>天气</mark>很好"),
        ("北京的天气很好", "京", "北<mark>京</mark>的天气很好"),
        ("<b>pay</b> & go", "pay", "&lt;b&gt;<mark>pay</mark>&lt;/b&gt; &amp; go"),
        ("</mark>pay", "pay", "&lt;/mark&gt;<mark>pay</mark>"),
        ("nothing here", "pay", "nothing here"),
        ("one\n\n  two", "two", "one <mark>two</mark>"),
        ("Flowers, dying or dead", "die", "Flowers, <mark>dying</mark> or dead"),
        ("at six O'Clock sharp", "oclock", "at six <mark>O&#x27;Clock</mark> sharp"),
        ("paid 1,000 of 10,000", "1000", "paid <mark>1,000</mark> of 10,000"),
    ],
)
def test_matches_are_marked_and_the_rest_escaped(text, asked, expected):
    assert expected == mark(text, set(terms_of(asked)), (), 200)


def test_a_phrase_is_marked_completely():
    assert "paid <mark>NET 30</mark> days" == mark("paid NET 30 days", (), [fold("net 30")], 200)


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        ("Wait… pay net 30 now", "net 30", "Wait… pay <mark>net 30</mark> now"),
        ("Straße 5, net 30", "net 30", "Straße 5, <mark>net 30</mark>"),
        ("an der Straße 5", "STRASSE 5", "an der <mark>Straße 5</mark>"),
        ("so…so \u200b net\u00ad 30", "net 30", "so…so \u200b <mark>net\u00ad 30</mark>"),
        ("e\u0301 cafe\u0301 noir", "café noir", "e\u0301 <mark>cafe\u0301 noir</mark>"),
        ("他说…天气很好", "天气", "他说…<mark>天气</mark>很好"),
        ("\u1112\u1161\u11ab… x", "한", "<mark>\u1112\u1161\u11ab…</mark> x"),
    ],
)
def test_a_phrase_is_marked_where_folding_changes_lengths(text, asked, expected):
    assert expected == mark(text, set(), [fold(asked)], 200)


def test_of_a_phrase_and_a_word_the_first_is_shown_and_both_are_marked():
    text = "… " * 100 + "tea at net 30 and tea " + "word " * 100

    excerpt = mark(text, {"tea"}, ["net 30"], 60)

    assert "<mark>tea</mark> at <mark>net 30</mark> and <mark>tea</mark>" in excerpt


@pytest.mark.parametrize("filler", ["filler ", "Füller… "])
def test_a_match_at_the_end_of_a_long_text_is_shown(filler):
    text = filler * 8_000 + "needle net 30"

    assert mark(text, {"needl"}, (), 60).endswith("<mark>needle</mark> net 30")
    assert mark(text, (), ["net 30"], 60).endswith("needle <mark>net 30</mark>")
    assert around(text, {"needl"}, 60).endswith("needle net 30")


def test_a_run_that_matches_everywhere_is_cut_too():
    assert len(mark("天" * 5_000, {"天天"}, (), 60)) < 100


def test_adjacent_matches_are_one_mark():
    assert "<mark>天气很</mark>好" == mark("天气很好", {"天气", "气很"}, (), 200)


def test_a_long_text_is_cut_around_the_first_match():
    text = "word " * 100 + "needle " + "word " * 100

    excerpt = mark(text, {"needl"}, (), 60)

    assert "<mark>needle</mark>" in excerpt
    assert excerpt.startswith("…")
    assert excerpt.endswith("…")
    assert len(excerpt) <= 60 + len("<mark></mark>……")


def test_an_excerpt_without_marks_is_plain_text():
    text = "a < b " * 50 + "needle " + "x " * 100

    assert "needle" in around(text, {"needl"}, 60)
    assert "a < b" == around("a < b", {"needl"}, 60)
