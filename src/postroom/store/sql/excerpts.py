"""The words around a match, as the mail wrote them."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from postroom.mail.fold import fold
from postroom.model.stored import FIELD_BORDER

_LONGEST = 160
_BEFORE = 60
_TOO_LONG = 200_000


def excerpt(searchable: str, q: str, originals: tuple[str, ...]) -> str:
    """At most 160 characters around the first match of a folded *q*.

    *originals* are the fields of which *searchable* holds the folded form, in the same order.
    """
    for position, folded in enumerate(searchable.split(FIELD_BORDER)):
        place = folded.find(q)
        if place < 0:
            continue
        if position >= len(originals):
            return ""
        plain = " ".join(originals[position][:_TOO_LONG].split())
        return _window(plain, _original_place(plain, folded, place), len(q))
    return ""


def _original_place(plain: str, folded: str, place: int) -> int:
    """Where the character that was folded to this place stands in the text itself."""
    if len(plain) == len(folded) or plain[:place].lower() == folded[:place]:
        return min(place, max(len(plain) - 1, 0))
    # A ligature or a sharp s becomes two characters, an invisible one none: count them.
    ends = list(accumulate(len(fold(f"x{char}x")) - 2 for char in plain))
    return min(bisect_right(ends, place), max(len(plain) - 1, 0))


def _window(text: str, at: int, length: int) -> str:
    start = max(0, min(at - _BEFORE, len(text) - _LONGEST))
    end = min(len(text), start + _LONGEST)
    if at + length > end:
        start, end = at, min(len(text), at + _LONGEST)
    shown = text[start:end]
    if start > 0:
        shown = "…" + shown[1:]
    if end < len(text):
        shown = shown[:-1] + "…"
    return shown
