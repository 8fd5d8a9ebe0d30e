"""Excerpts around the terms of a search."""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from html import escape
from itertools import chain, takewhile

from postroom.mail.text.fold import IGNORABLE, fold
from postroom.mail.text.terms import places_of, words

Span = tuple[int, int]
_NOTHING: Span = (0, 0)
_SHORT = 32
_IGNORED = re.compile(f"[{IGNORABLE}]")


def around(text: str, terms: AbstractSet[str], most: int) -> str:
    """At most *most* characters of a text, around the first of the terms that occurs in it."""
    plain = " ".join(text.split())
    if len(plain) <= most:
        return plain
    start, end = _window(plain, next(_term_spans(plain, terms), _NOTHING), most)
    return _with_dots(plain[start:end], start > 0, end < len(plain))


def mark(text: str, terms: AbstractSet[str], phrases: Collection[str], most: int) -> str:
    """The same as HTML: what was looked for in `<mark>`, everything else escaped.

    A text is read no further than to the end of what is shown of it.
    """
    plain = " ".join(text.split())
    found = heapq.merge(
        _term_spans(plain, terms), *(_phrase_spans(plain, phrase) for phrase in phrases)
    )
    match = next(found, None)
    start, end = _window(plain, match or _NOTHING, most)
    shown = takewhile(lambda span: span[0] < end, chain([match] if match else [], found))
    pieces, at = [], start
    for first, last in _joined(shown):
        pieces += [escape(plain[at:first]), "<mark>", escape(plain[first:last]), "</mark>"]
        at = last
    pieces.append(escape(plain[at : max(at, end)]))
    return _with_dots("".join(pieces), start > 0, max(at, end) < len(plain))


def _term_spans(text: str, terms: AbstractSet[str]) -> Iterator[Span]:
    """Where some terms stand, one after the other."""
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
    """Where a folded phrase stands, one after the other."""
    folded, origins = fold(text), None
    at = folded.find(phrase)
    if at >= 0 and not text.isascii():
        folded, origins = _folded(text)
        at = folded.find(phrase)
    while at >= 0:
        end = at + len(phrase)
        yield (origins[at][0], origins[end - 1][1]) if origins else (at, end)
        at = folded.find(phrase, end)


def _folded(text: str) -> tuple[str, list[Span]]:
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


@lru_cache(maxsize=10_000)
def _fold_short(text: str) -> str:
    return fold(text)


def _characters(word: str) -> Iterator[Span]:
    """The characters of a word, each with what belongs to it."""
    first = 0
    for at in range(1, len(word)):
        if not unicodedata.combining(word[at]) and not _IGNORED.match(word[at]):
            yield first, at
            first = at
    yield first, len(word)


def _joined(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _window(text: str, match: Span, most: int) -> Span:
    """Where to begin and end, with a third of the room before the match."""
    start = max(0, min(match[0] - most // 3, len(text) - most))
    return start, min(len(text), start + most)


def _with_dots(text: str, is_cut_before: bool, is_cut_after: bool) -> str:  # noqa: FBT001
    return f"{'…' if is_cut_before else ''}{text}{'…' if is_cut_after else ''}"
