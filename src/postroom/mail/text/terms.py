"""Words of a text as a search by words compares them: folded, without accents, stemmed.

Chinese, Japanese, Korean, Thai and their neighbours write without spaces, or join words to others:
of those every character and every pair of characters is a term.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import NamedTuple

import Stemmer  # type: ignore[import-not-found]

from postroom.mail.data import load
from postroom.mail.text.fold import fold

LONGEST_TERM = 64
"""Characters of a word that count; what is longer is no word but data."""

_DATA = load("terms")
_UNSPACED, _SIGNS = _DATA["unspaced"], _DATA["signs"]
_LETTER = rf"(?:[^\W_{_UNSPACED}]|[{_SIGNS}])"
_WORD = re.compile(rf"[{_UNSPACED}]+|\d{{1,3}}(?:,\d{{3}})+(?!\d)|{_LETTER}+(?:['’]{_LETTER}+)*")
_ASCII_WORD = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)|[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*")
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")

STOP_WORDS = frozenset(_DATA["stop_words"].split())
"""English stop words."""


class _EnglishStemmer(threading.local):
    """Snowball's English stemmer, one for each thread because an instance has state.

    Stored terms are stems: a version that stems differently needs a new ranking index.
    """

    def __init__(self) -> None:
        # word_terms has a cache of its own.
        self.stem = Stemmer.Stemmer("english", 0).stemWord


_STEMMER = _EnglishStemmer()


class Word(NamedTuple):
    """A word of a text, where it stands, and the terms that stand for it.

    A run of a script without spaces counts as one word.
    """

    start: int
    end: int
    terms: tuple[str, ...]
    is_run: bool


def words(text: str) -> Iterator[Word]:
    """The words of a text in order."""
    for match in _WORD.finditer(text):
        word = match.group()
        yield Word(match.start(), match.end(), word_terms(word), _is_run(word))


def places_of(text: str, terms: AbstractSet[str]) -> Iterator[tuple[int, int]]:
    """Where the words of a plain ASCII text stand that some terms stand for."""
    begins = _beginnings(terms)
    for match in _ASCII_WORD.finditer(text.lower()):
        word = match.group()
        # Most words begin otherwise: no need to know their stems.
        may_be = word[:2] in begins or word[0] in begins or not word.isalnum()
        if may_be and not terms.isdisjoint(word_terms(word)):
            yield match.span()


def _beginnings(terms: AbstractSet[str]) -> set[str]:
    """How words begin whose stem is a term: like it, unless they are like `dying` and `die`."""
    return {term[:2] for term in terms} | {f"{t[0]}y" for t in terms if t[1:] == "ie"}


def count_terms(text: str) -> Counter[str]:
    """The terms of a text, each with how often it occurs."""
    found: list[str] = []
    for word in _written(text):
        found += word_terms(word)
        if len(word) > 1 and _is_run(word):
            found += _folded(word)
    return Counter(found)


def terms_of(text: str) -> list[str]:
    """The terms to look for if somebody asks with these words, each once."""
    return list(dict.fromkeys(term for word in _written(text) for term in word_terms(word)))


def question_terms(text: str) -> list[str]:
    """The terms of a question without the words that every question has, if any are left."""
    telling = [word for word in _written(text) if word.lower() not in STOP_WORDS]
    return list(dict.fromkeys(t for word in telling for t in word_terms(word))) or terms_of(text)


def _written(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text)
    return [match.group() for match in _WORD.finditer(text)]


@lru_cache(maxsize=50_000)
def word_terms(word: str) -> tuple[str, ...]:
    """The terms of one word: its stem, or the pairs of a run without spaces."""
    folded = _folded(word)
    if _is_run(word):
        return tuple(folded[at : at + 2] for at in range(len(folded) - 1)) or (folded,)
    folded = folded[:LONGEST_TERM]
    if folded.isascii() and folded.isalpha():
        return (_STEMMER.stem(folded),)
    return (folded,) if folded else ()


def _is_run(word: str) -> bool:
    return not word.isascii() and _UNSPACED_RUN.fullmatch(word) is not None


def _folded(word: str) -> str:
    if word.isascii():
        return word.lower().removesuffix("'s").replace("'", "").replace(",", "")
    folded = _ACCENTS.sub("", unicodedata.normalize("NFD", fold(word).replace(" ", "")))
    folded = unicodedata.normalize("NFC", folded).replace("’", "'").removesuffix("'s")
    return folded.replace("'", "").replace(",", "")
