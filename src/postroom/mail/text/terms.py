"""Words of a text as a search by words compares them, and excerpts around them.

A word is folded, without accents, and stemmed. Chinese, Japanese, Korean, Thai and their neighbours
write without spaces, or join words to others: of those every character and every pair of
characters is a term.
"""

from __future__ import annotations

import heapq
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from html import escape
from itertools import chain, takewhile
from typing import NamedTuple

import Stemmer  # type: ignore[import-not-found]

from postroom.mail.data import load
from postroom.mail.text.fold import IGNORABLE, fold

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
        # word_terms has its own cache.
        self.stem = Stemmer.Stemmer("english", 0).stemWord


_STEMMER = _EnglishStemmer()


class Word(NamedTuple):
    """A word of a text, its position, and its terms.

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
    """The positions of the words of a plain ASCII text that have one of some terms."""
    begins = _possible_prefixes(terms)
    for match in _ASCII_WORD.finditer(text.lower()):
        word = match.group()
        # Most words begin otherwise: no need to know their stems.
        may_be = word[:2] in begins or word[0] in begins or not word.isalnum()
        if may_be and not terms.isdisjoint(word_terms(word)):
            yield match.span()


def _possible_prefixes(terms: AbstractSet[str]) -> set[str]:
    """How words begin whose stem is a term: like it, unless they are like `dying` and `die`."""
    return {term[:2] for term in terms} | {f"{t[0]}y" for t in terms if t[1:] == "ie"}


def count_terms(text: str) -> Counter[str]:
    """The terms of a text, each with how often it occurs."""
    found: list[str] = []
    for word in _split_words(text):
        found += word_terms(word)
        if len(word) > 1 and _is_run(word):
            found += _folded(word)
    return Counter(found)


def terms_of(text: str) -> list[str]:
    """The terms of a query, each once."""
    return list(dict.fromkeys(term for word in _split_words(text) for term in word_terms(word)))


def question_terms(text: str) -> list[str]:
    """The terms of a question without the words that every question has, if any are left."""
    significant = [word for word in _split_words(text) if word.lower() not in STOP_WORDS]
    return list(dict.fromkeys(t for word in significant for t in word_terms(word))) or terms_of(
        text
    )


def _split_words(text: str) -> list[str]:
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


Span = tuple[int, int]
_NOTHING: Span = (0, 0)
_SHORT = 32
_IGNORED = re.compile(f"[{IGNORABLE}]")


def around(text: str, terms: AbstractSet[str], max_chars: int) -> str:
    """At most *max_chars* characters of a text, around the first of the terms that occurs in it."""
    plain = " ".join(text.split())
    if len(plain) <= max_chars:
        return plain
    start, end = _window(plain, next(_term_spans(plain, terms), _NOTHING), max_chars)
    return _with_ellipses(plain[start:end], start > 0, end < len(plain))


def mark(text: str, terms: AbstractSet[str], phrases: Collection[str], max_chars: int) -> str:
    """The same as HTML: what was looked for in `<mark>`, everything else escaped.

    A text is read no further than to the end of what is shown of it.
    """
    plain = " ".join(text.split())
    found = heapq.merge(
        _term_spans(plain, terms), *(_phrase_spans(plain, phrase) for phrase in phrases)
    )
    match = next(found, None)
    start, end = _window(plain, match or _NOTHING, max_chars)
    shown = takewhile(lambda span: span[0] < end, chain([match] if match else [], found))
    pieces, at = [], start
    for first, last in _merge_spans(shown):
        pieces += [escape(plain[at:first]), "<mark>", escape(plain[first:last]), "</mark>"]
        at = last
    pieces.append(escape(plain[at : max(at, end)]))
    return _with_ellipses("".join(pieces), start > 0, max(at, end) < len(plain))


def _term_spans(text: str, terms: AbstractSet[str]) -> Iterator[Span]:
    """The positions of some terms, one after the other."""
    if not terms:
        return
    if text.isascii():
        yield from places_of(text, terms)
        return
    single = {term for term in terms if len(term) == 1}
    for word in words(text):
        found = [at for at, term in enumerate(word.terms) if term in terms]
        if word.is_run and word.end - word.start == max(2, len(word.terms) + 1):
            # Each term of a run is a pair of its characters.
            pairs = [(word.start + at, word.start + at + 2) for at in found]
            run = enumerate(text[word.start : word.end], word.start)
            yield from sorted(pairs + [(at, at + 1) for at, one in run if one in single])
        elif found:
            yield word.start, word.end


def _phrase_spans(text: str, phrase: str) -> Iterator[Span]:
    """The positions of a folded phrase, one after the other."""
    folded, origins = fold(text), None
    at = folded.find(phrase)
    if at >= 0 and not text.isascii():
        folded, origins = _folded_with_origins(text)
        at = folded.find(phrase)
    while at >= 0:
        end = at + len(phrase)
        yield (origins[at][0], origins[end - 1][1]) if origins else (at, end)
        at = folded.find(phrase, end)


def _folded_with_origins(text: str) -> tuple[str, list[Span]]:
    """A text word by word in its folded form, and where each character of that comes from."""
    pieces: list[str] = []
    origins: list[Span] = []
    start = 0
    for word in text.split(" "):
        piece = _fold_short(word) if len(word) <= _SHORT else fold(word)
        if piece:
            origins += [(start - 1, start)] if pieces else []
            origins += _origins(word, piece, start)
            pieces.append(piece)
        start += len(word) + 1
    return " ".join(pieces), origins


def _origins(word: str, folded: str, start: int) -> Iterable[Span]:
    """Where each folded character of a word comes from; if that is not clear, the whole word."""
    if word.isascii():
        return ((at, at + 1) for at in range(start, start + len(word)))
    spans: list[Span] = []
    pieces: list[str] = []
    for first, last in _characters(word):
        piece = _fold_short(word[first:last])
        pieces.append(piece)
        spans += [(start + first, start + last)] * len(piece)
    whole = (start, start + len(word))
    return spans if "".join(pieces) == folded else [whole] * len(folded)


_fold_short = lru_cache(maxsize=10_000)(fold)


def _characters(word: str) -> Iterator[Span]:
    """The characters of a word, each with what belongs to it."""
    first = 0
    for at in range(1, len(word)):
        if not unicodedata.combining(word[at]) and not _IGNORED.match(word[at]):
            yield first, at
            first = at
    yield first, len(word)


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _window(text: str, match: Span, max_chars: int) -> Span:
    """Where to begin and end, with a third of the room before the match."""
    start = max(0, min(match[0] - max_chars // 3, len(text) - max_chars))
    return start, min(len(text), start + max_chars)


def _with_ellipses(text: str, is_cut_before: bool, is_cut_after: bool) -> str:  # noqa: FBT001
    return f"{'…' if is_cut_before else ''}{text}{'…' if is_cut_after else ''}"
