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

from postroom.mail.text.fold import fold

LONGEST_TERM = 64
"""Characters of a word that count; what is longer is no word but data."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3021-\u3029\u3031-\u3035"
    "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3131-\u318e\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff\uff66-\uffdc\U00016fe0-\U0001b2ff"
    "\U00020000-\U0003ffff"
)
# `\w` knows no vowel signs, which most scripts of India write, and no combining accents.
_SIGNS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u0711\u0730-\u074a\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0983"
    "\u09bc-\u09d7\u0a01-\u0a03\u0a3c-\u0a51\u0a70\u0a71\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03"
    "\u0b3c-\u0b57\u0b82\u0bbe-\u0bd7\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6"
    "\u0d00-\u0d03\u0d3b-\u0d57\u0d82\u0d83\u0dca-\u0ddf\u0f71-\u0f84\u1dc0-\u1dff\u20d0-\u20f0"
    "\ufe20-\ufe2f"
)
_LETTER = rf"(?:[^\W_{_UNSPACED}]|[{_SIGNS}])"
_WORD = re.compile(rf"[{_UNSPACED}]+|\d{{1,3}}(?:,\d{{3}})+(?!\d)|{_LETTER}+(?:['’]{_LETTER}+)*")
_ASCII_WORD = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)|[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*")
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")

_STOP_STEMS = """
    a about after all also am an and any are as at be because been before being but by can could did
    do does doing for from had has have having he her here hers him his how i if in into is it its
    just let me more most my no nor not of off on once only or other our ours out over own please
    she should so some such than that the their theirs them then there these they this those through
    to too under until up us very was we were what when where which while who whom whose why will
    with would you your yours
"""
STOP_WORDS = frozenset(_STOP_STEMS.split())
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
