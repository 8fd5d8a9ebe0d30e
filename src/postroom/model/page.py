"""Ids, pages of lists, and parts of texts."""

from __future__ import annotations

import secrets
from dataclasses import field
from typing import Any, Generic, TypeVar, get_origin

from postroom.model.values import dataclass

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
"""The digits of base 32, without letters that look alike."""

_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]


def random_id(prefix: str) -> str:
    """Create an id: a prefix and 60 random bits.

    It is short, because a model reads and writes it; what it names is protected by keys.
    """
    bits = int.from_bytes(secrets.token_bytes(8)) >> 4
    return f"{prefix}_{''.join([_PAIRS[bits >> shift & 1023] for shift in range(50, -1, -10)])}"


T = TypeVar("T")

SortKey = tuple[int | str, ...]
"""The sort key of the last row of a slice, after which the next one starts."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The requested part of a list: by offset, or after a row."""

    limit: int = 50
    offset: int = 0
    after: SortKey | None = None


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A slice of rows, the exact total, and the start of the next slice."""

    rows: tuple[T, ...]
    total: int
    offset: int
    next: SortKey | None
    unranked: int = 0
    """How many messages are not in the ranking index yet, or only with their words."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One slice of a list. `total` counts all matches, `offset` those before this slice."""

    results: tuple[T, ...]
    total: int
    limit: int
    offset: int
    next_cursor: str | None = field(default=None, kw_only=True)
    hint: str | None = field(default=None, kw_only=True)
    """What to try next, if nothing was found; or that a ranking is not final."""

    @property
    def has_more(self) -> bool:
        return self.offset + len(self.results) < self.total


def cut_text(text: str, offset: int, max_chars: int) -> dict[str, Any]:
    """A part of a text, and what is said of the rest, as fields of a result."""
    total = len(text)
    end = min(total, offset + max_chars)
    return {
        "text": text[offset:end],
        "truncated": True if end < total else None,
        "total_chars": total if offset or end < total else None,
        "next_offset": end if end < total else None,
    }


@dataclass(frozen=True, slots=True)
class FoundIds:
    """The first ids that begin with the same characters."""

    ids: tuple[str, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class Receipt:
    """The part of a result that a caller without the scope `read` is shown."""

    shown: dict[str, Any]
    status: str | None = None


def is_page(kind: Any) -> bool:
    """Whether a type is a page, such as `Page[Inbox]`, or a subclass of it."""
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Page)
