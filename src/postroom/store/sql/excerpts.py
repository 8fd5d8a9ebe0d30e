"""The words around a match, as the mail wrote them."""

from __future__ import annotations

from postroom.model.stored import FIELD_BORDER

_LONGEST = 160
_BEFORE = 60
_TOO_LONG = 200_000


def excerpt(searchable: str, q: str, originals: tuple[str, ...]) -> str:
    """At most 160 characters around the first match of a folded *q*.

    *originals* are the fields of which *searchable* holds the folded form, in the same order.
    Where folding changed lengths, the folded text itself is shown.
    """
    for position, folded in enumerate(searchable.split(FIELD_BORDER)):
        place = folded.find(q)
        if place < 0:
            continue
        original = originals[position] if position < len(originals) else folded
        if len(original) < _TOO_LONG:
            plain = " ".join(original.split())
            at = plain.lower().find(q)
            if at >= 0 and len(plain.lower()) == len(plain):
                return _window(plain, at, len(q))
        return _window(folded, place, len(q))
    return ""


def _window(text: str, at: int, length: int) -> str:
    start = max(0, min(at - _BEFORE, len(text) - _LONGEST))
    end = min(len(text), max(start + _LONGEST, 0))
    if at + length > end:
        start, end = at, at + _LONGEST
    shown = text[start:end]
    if start > 0:
        shown = "…" + shown[1:]
    if end < len(text):
        shown = shown[:-1] + "…"
    return shown
