"""What was read stays true until somebody writes: an engine keeps it for as long."""

from __future__ import annotations

from typing import Any

_MOST = 32
"""A set of a million messages takes 125 KB."""


class Remembering:
    """What was read at one moment of a database. Any thread may ask."""

    def __init__(self) -> None:
        self._read: tuple[object, dict[object, Any]] = (None, {})

    def at(self, moment: object) -> dict[object, Any]:
        """What is remembered of a moment; that of any other is forgotten."""
        read = self._read
        if read[0] != moment or len(read[1]) > _MOST:
            read = self._read = moment, {}
        return read[1]
