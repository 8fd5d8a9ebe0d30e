"""A time that tests move."""

from __future__ import annotations

from datetime import UTC, datetime


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 6, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now
