"""Words as a search compares them."""

from __future__ import annotations

import pytest

from postroom.mail.stemming import stem
from postroom.mail.terms import count_terms, question_terms, terms_of


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("invoices", "invoic"),
        ("invoicing", "invoic"),
        ("running", "run"),
        ("happily", "happili"),
        ("relational", "relat"),
        ("conditional", "condit"),
        ("generously", "generous"),
        ("hoping", "hope"),
        ("hopping", "hop"),
        ("dying", "die"),
        ("skies", "sky"),
        ("news", "news"),
        ("succeeding", "succeed"),
        ("as", "as"),
    ],
)
def test_endings_go_by_the_rules(word, expected):
    assert expected == stem(word)


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("studies", "study"),
        ("CAFÉ", "cafe"),
        ("Straße", "STRASSE"),
        ("Ana’s", "ana"),
        ("don't", "dont"),
        ("40,000", "40000"),
        ("ＡＢＣ", "abc"),
        ("e\u0301te\u0301", "été"),
        ("नमस्ते", "नमस्ते"),
    ],
)
def test_words_that_mean_the_same_are_one_term(asked, written):
    assert terms_of(asked) == terms_of(written)
    assert 1 == len(terms_of(asked))


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("天气", "北京的天气很好，明天去公园"),
        ("京", "北京的天气很好"),
        ("会議", "東京都の会議は金曜日です"),
        ("カタカナ", "ｶﾀｶﾅで書く"),
        ("서울", "서울에서 만나요"),
        ("สวัสดี", "สวัสดีชาวโลก"),
    ],
)
def test_a_part_of_a_text_without_spaces_is_found_in_it(part, whole):
    assert set(terms_of(part)) <= set(count_terms(whole))


def test_a_word_is_counted_as_often_as_it_occurs():
    assert {"meet": 2, "ana": 1, "inv": 1, "2041": 1} == count_terms("Meeting Ana: meet INV-2041")


def test_a_question_is_asked_without_the_words_that_every_question_has():
    assert ["like", "bill"] == question_terms("How does she like to be billed?")
    assert ["who", "is", "it"] == question_terms("Who is it?")
    assert [] == question_terms("?!")


def test_text_that_is_no_words_has_no_terms():
    assert {} == count_terms(" \t…—(){}\u200b_")
