"""How many may be answered at the same time; whoever finds no room is told when to come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from postroom.errors import Unavailable

MOST_AT_ONCE = 128
"""Requests that one process answers at the same time; those that wait for mail do not count."""


@dataclass(slots=True)
class Room:
    """Places for those that are being answered.

    More at once would make each of them wait longer, and none be answered sooner. Nobody has a
    place whose body is still on its way (`arrivals.py`).
    """

    most: int = MOST_AT_ONCE
    taken: int = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take a place before anything is done. Raises Unavailable if there is none."""
        if self.taken >= self.most:
            raise Unavailable("there is too much to do just now; try again", retry_after=1)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
