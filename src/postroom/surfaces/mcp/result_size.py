"""Cutting results to the size of a model's context, with a note on what was cut."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from msgspec.json import encode

Body = dict[str, Any]

MAX_CHARS = 100_000
"""25,000 tokens of 4 characters: clients refuse more."""

_NOTES_CHARS = 4_000
"""What the notes on what was cut take at most."""

_LEAST = 64
"""No part is cut below this, so that ids stay whole."""

_HALF = re.compile("(?:</?m?a?r?k?|&[a-z0-9#]{0,6})$")
"""The beginning of a mark, or of a character that is escaped."""

_MAX_NOTES = 20
_ROWS = ("messages", "matched_messages", "results")
"""Lists that are cut by whole rows."""


def as_text(value: Any) -> str:
    """Compact JSON; half of a surrogate pair, which UTF-8 has no bytes for, is replaced."""
    try:
        return encode(value).decode()
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def fit(body: Body, go_on: str, most_chars: int = MAX_CHARS) -> Body:
    """Cut the largest parts of an answer until it fits; small parts stay whole.

    Then `truncated` is true, `cut` names what was cut, and `go_on` says how to read the rest.
    """
    if len(as_text(body)) <= most_chars:
        return body
    budget = most_chars - _NOTES_CHARS
    cutter = _Cutter(_largest_share(body, budget))
    short: Body = cutter.shorten(body, "")
    cutter.notes |= _drop_rows(short, budget)
    _mend_offset(body, short)
    return {**short, "truncated": True, "cut": _told(cutter.notes), "go_on": go_on}


def _largest_share(body: Body, budget: int) -> int:
    """How long each part may be at most so that all of them find room, to a few per cent."""
    low, high = _LEAST, budget
    while high - low > low // 32:
        middle = (low + high + 1) // 2
        if len(as_text(_Cutter(middle).shorten(body, ""))) <= budget:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(slots=True)
class _Cutter:
    """Shortens every text and every list to one share, and keeps note of it."""

    share: int
    notes: dict[str, str] = field(default_factory=dict)

    def shorten(self, value: Any, path: str) -> Any:
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, list):
            return self._list(value, path)
        if isinstance(value, dict):
            return self._object(value, path)
        return value

    def _text(self, text: str, path: str) -> str:
        if len(text) <= self.share:
            return text
        self.notes[path] = f"{self.share} characters of {len(text)}"
        short = text[: self.share]
        return _mend_html(short) if path.endswith("excerpt") else short

    def _list(self, items: list[Any], path: str) -> list[Any]:
        short = [self.shorten(item, f"{path}[]") for item in items]
        if path in _ROWS:
            return short
        size = 0
        for number, item in enumerate(short):
            size += len(as_text(item)) + 1
            if size > self.share and number:
                self.notes[path] = f"{number} of {len(items)}"
                return short[:number]
        return short

    def _object(self, fields: Body, path: str) -> Body:
        short: Body = {}
        for name, value in fields.items():
            inner = f"{path}.{name}" if path else name
            # Half of a base64 file is useless.
            if name == "content" and isinstance(value, str) and len(value) > self.share:
                self.notes[inner] = "left out"
                short["content_omitted"] = True
            else:
                short[name] = self.shorten(value, inner)
        return short


def _mend_html(short: str) -> str:
    """An excerpt that may be HTML without half of a tag or character at its end, and closed."""
    whole = _HALF.sub("", short)
    return whole + "</mark>" if whole.count("<mark>") > whole.count("</mark>") else whole


def _drop_rows(short: Body, budget: int) -> dict[str, str]:
    """Leave out rows when even short ones are too many: the last of a page, a thread's oldest."""
    name = next((name for name in _ROWS if name in short), "results")
    rows = short.get(name) or []
    over = len(as_text(short)) - budget
    kept = list(rows)
    while over > 0 and kept:
        over -= len(as_text(kept.pop(0 if name == "messages" else -1))) + 1
    if len(kept) == len(rows):
        return {}
    short |= {name: kept, "has_more": True}
    if name != "messages":
        short["count"] = len(kept)
        # A cursor would skip the rows that were left out; an offset does not.
        short.pop("next_cursor", None)
    return {name: f"{len(kept)} of {len(rows)}"}


def _mend_offset(body: Body, short: Body) -> None:
    """Let `next_offset` point to where the text of a message ends now."""
    whole, part = body.get("text"), short.get("text")
    if not isinstance(whole, str) or not isinstance(part, str) or whole == part:
        return
    end = body.get("next_offset") or body.get("total_chars") or len(whole)
    short["total_chars"] = body.get("total_chars", len(whole))
    short["next_offset"] = end - (len(whole) - len(part))


def _told(notes: dict[str, str]) -> list[str]:
    told = [f"{path}: {what}" for path, what in notes.items()]
    rest = len(told) - _MAX_NOTES
    return [*told[:_MAX_NOTES], f"and {rest} more"] if rest > 0 else told
