"""Terms: words as a search compares them."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import postroom_model
import pytest

from postroom.mail.text.terms import count_terms, question_terms, terms_of, word_terms

VOCABULARY = Path(postroom_model.__file__).parent / "vocabulary.txt"


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
def test_english_words_are_stemmed(word, expected):
    assert (expected,) == word_terms(word)


def english_words() -> list[str]:
    words = VOCABULARY.read_text("utf-8").split()
    return [word for word in words if word.isascii() and word.isalpha()]


def test_stems_are_those_of_the_stored_terms():
    """If this fails, PyStemmer stems differently: add a migration that indexes documents again."""
    stems = " ".join(word_terms(word)[0] for word in english_words())

    expected = "1595b15e82c4c5d9605bbff511f7ef3778a2834fa94637480e1848df6ab40ec7"
    assert expected == hashlib.sha256(stems.encode()).hexdigest()


def test_threads_get_the_same_stems():
    words = english_words()
    expected = [word_terms(word) for word in words]
    stem = word_terms.__wrapped__

    with ThreadPoolExecutor(4) as threads:
        results = [threads.submit(lambda: [stem(word) for word in words]) for _ in range(4)]

    assert [expected] * 4 == [result.result() for result in results]


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


def test_stop_words_of_a_question_are_ignored():
    assert ["like", "bill"] == question_terms("How does she like to be billed?")
    assert ["who", "is", "it"] == question_terms("Who is it?")
    assert [] == question_terms("?!")


def test_text_without_words_has_no_terms():
    assert {} == count_terms(" \t…—(){}\u200b_")
