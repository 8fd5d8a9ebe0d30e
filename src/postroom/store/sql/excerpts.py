"""The words around a match, as the mail wrote them."""

from __future__ import annotations

import re
from bisect import bisect_right
from unicodedata import combining

from postroom.mail.fold import IGNORABLE, fold
from postroom.model.stored import FIELD_BORDER

_LONGEST = 160
_BEFORE = 60
_PIECES = 16_384, 512

_INVISIBLE = re.compile(f"[{IGNORABLE}]+")
_APART = re.compile("[\x00-\x7f\u3041-\u3096\u30a1-\u30fa\u3400-\u9fff\uac00-\ud7a3]")
"""Characters that folding never joins with what is before them."""


def excerpt(searchable: str, q: str, originals: tuple[str, ...]) -> str:
    """At most 160 characters around the first match of a folded *q*.

    *originals* are the fields of which *searchable* holds the folded form, in the same order.
    """
    for original, folded in zip(originals, searchable.split(FIELD_BORDER), strict=False):
        place = folded.find(q)
        if place >= 0:
            text = " ".join(original.split())
            return _window(text, *_origin(text, folded, place, place + len(q)))
    return ""


def _origin(text: str, folded: str, first: int, last: int) -> tuple[int, int]:
    """Which part of a text was folded to this part of its folded form."""
    begin, end = first, last
    lowered = text[:last].lower()
    if len(lowered) > last or lowered != folded[:last]:
        start, stop, done = _piece_at(text, folded, first, 0, 0)
        begin, _ = _furthest(text[start:stop], folded, done, first)
        begin += start
        start, stop, done = _piece_at(text, folded, last, start, done)
        end, reached = _furthest(text[start:stop], folded, done, last)
        # A sharp s is shown whole, even if the match ends in the middle of what became of it.
        end += start + (reached < last)
    while end < len(text) and combining(text[end]):
        end += 1
    return begin, end


def _piece_at(text: str, folded: str, place: int, start: int, done: int) -> tuple[int, int, int]:
    """The piece of a text that has what was folded to a place, and what its beginning was.

    It looks from *start* on, which was folded to what begins at *done*.
    """
    stop = len(text)
    for size in _PIECES:
        while start + size < stop and (cut := _APART.search(text, start + size, stop)):
            after = done + _folded_size(text[start : cut.start()], folded, done)
            if after > place:
                stop = cut.start()
                break
            start, done = cut.start(), after
    return start, stop, done


def _furthest(piece: str, folded: str, done: int, place: int) -> tuple[int, int]:
    """How much of a piece was folded to what is before a place, and how far that reaches."""

    def reach(length: int) -> int:
        return done + _folded_size(piece[:length], folded, done)

    length = bisect_right(range(len(piece) + 1), place, key=reach) - 1
    return length, reach(length)


def _folded_size(part: str, folded: str, done: int) -> int:
    """How many characters a part of a text was folded to, if so many were before it.

    A ligature or a sharp s becomes two characters, an invisible one none.
    """
    lowered = part.lower()
    if folded.startswith(lowered, done):
        return len(lowered)
    own = fold(f"#{part}#")[1:-1]
    is_spaced = done == 0 or folded[done - 1] == " "
    return len(own.lstrip() if is_spaced else own)


def _window(text: str, first: int, last: int) -> str:
    """What is around a part of a text; all of that part is shown if it is not too long."""
    match = text[first:last]
    if len(match) > _LONGEST:
        match = _INVISIBLE.sub("", match)
    if len(match) > _LONGEST - 2:
        return match if len(match) <= _LONGEST else match[: _LONGEST - 1] + "…"
    start, stop = max(0, first - _LONGEST), last + _LONGEST
    at, line = first - start, text[start:first] + match + text[last:stop]
    left = min(at - _BEFORE, len(line) - _LONGEST)
    left = max(0, left, at + len(match) + 1 - _LONGEST)
    shown = line[left : left + _LONGEST]
    if start + left > 0:
        shown = "…" + shown[1:]
    if stop < len(text) or left + _LONGEST < len(line):
        shown = shown[:-1] + "…"
    return shown
