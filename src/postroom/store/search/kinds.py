"""What kinds of rows a segment has, and how a row is written."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """What a row is. Rows about the three texts of a message are `STREAM` apart."""

    GRAM = 0
    SUFFIX = 1
    POSTING = 2
    LARGE = 3
    ENDING = 4
    JUNCTION = 5
    HEAD = 6
    ORDER = 100
    PLACE = 101
    DIGEST = 102


STREAM = 10
COLUMNS = ("searchable", "senders", "recipients")
"""The texts of a message, all folded; each is a stream of its own."""

NEXT, AFTER_SPACE = b"\0", b"\1"
"""Before each following token: does it stand right there, or after a space?"""


class SegmentRow(NamedTuple):
    """One row of a segment."""

    kind: int
    key: bytes
    part: int
    value: bytes
