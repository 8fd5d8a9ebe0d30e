"""The part of a text that a search by words was after."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from html import escape

from postroom.mail.fold import fold
from postroom.mail.terms import places_of, words

Span = tuple[int, int]
_LOOKED_AT = 20_000
"""Characters of a text in which matches are looked for."""


def around(text: str, terms: AbstractSet[str], most: int) -> str:
    """At most *most* characters of a text, around the first of the terms that occurs in it."""
    plain = " ".join(text[:_LOOKED_AT].split())
    if len(plain) <= most:
        return plain
    first = next(iter(_spans(plain, terms, ())), (0, 0))
    start, end = _window(plain, first, most)
    return _with_dots(plain[start:end], start > 0, end < len(plain))


def mark(text: str, terms: AbstractSet[str], phrases: Collection[str], most: int) -> str:
    """The same as HTML: what was looked for in `<mark>`, everything else escaped."""
    plain = " ".join(text[:_LOOKED_AT].split())
    spans = _joined(_spans(plain, terms, phrases))
    start, end = _window(plain, spans[0] if spans else (0, 0), most)
    pieces, at = [], start
    for first, last in spans:
        if first >= end:
            break
        pieces += [escape(plain[at:first]), "<mark>", escape(plain[first:last]), "</mark>"]
        at = last
    pieces.append(escape(plain[at : max(at, end)]))
    return _with_dots("".join(pieces), start > 0, end < len(plain))


def _spans(text: str, terms: AbstractSet[str], phrases: Collection[str]) -> Iterable[Span]:
    for phrase in phrases:
        yield from _phrase_spans(text, phrase)
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
            yield from ((word.start + at, word.start + at + 2) for at in found)
            run = enumerate(text[word.start : word.end], word.start)
            yield from ((at, at + 1) for at, character in run if character in single)
        elif found:
            yield word.start, word.end


def _phrase_spans(text: str, phrase: str) -> Iterable[Span]:
    """Where a folded phrase stands; a text that folding makes longer or shorter is passed over."""
    folded = fold(text)
    if len(folded) != len(text):
        return
    at = folded.find(phrase)
    while at >= 0:
        yield at, at + len(phrase)
        at = folded.find(phrase, at + len(phrase))


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
