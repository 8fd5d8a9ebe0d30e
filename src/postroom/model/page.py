"""A slice of an ordered list, with the exact size of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

Place = tuple[int | str, ...]
"""The sort key of the last row of a slice: where the next one begins."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Which part of a list is asked for: by offset, or from the place after a known row."""

    limit: int = 50
    offset: int = 0
    after: Place | None = None


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """What a store found: one slice, the exact total, and where the next slice begins."""

    rows: tuple[T, ...]
    total: int
    offset: int
    next: Place | None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One slice of a list. `total` counts all matches, `offset` those before this slice."""

    results: tuple[T, ...]
    total: int
    limit: int
    offset: int
    next_cursor: str | None = field(default=None, kw_only=True)

    @property
    def has_more(self) -> bool:
        return self.offset + len(self.results) < self.total
