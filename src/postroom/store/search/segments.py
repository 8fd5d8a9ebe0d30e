"""Segments: who they are, and where in them a message is."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass

from postroom.store.search.kinds import Kind
from postroom.store.transaction import Transaction

BUILDING, LIVE, GONE = range(3)
"""A segment is searched while it is live; the rows of one that is gone are being removed."""

LIVE_SEGMENTS = """
    SELECT number, size, oldest, newest FROM search_segments WHERE state = 1 ORDER BY newest DESC
"""
WITH_MESSAGE = """
    SELECT number, size, merging FROM search_segments
     WHERE state = 1 AND first <= :message AND last >= :message
"""
PLACES = """
    SELECT value FROM search_rows
     WHERE segment = :segment AND kind = :kind AND key <= :key ORDER BY key DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """Some messages, by date from the oldest to the newest; each is known by its place."""

    number: int
    size: int
    oldest: int
    newest: int


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a message is: its segment, its place in it, and what that is merged into."""

    segment: int
    size: int
    place: int
    merging: int | None


def live_segments(tx: Transaction) -> list[Segment]:
    """All segments that a search must look at, those with the newest mail first."""
    return [Segment(*row) for row in tx.all(LIVE_SEGMENTS)]


def spots_of(tx: Transaction, message: int) -> list[Spot]:
    """The places of a message; more than one if it was indexed again."""
    spots = []
    for number, size, merging in tx.all(WITH_MESSAGE, message=message):
        place = place_in(tx, number, message)
        if place is not None:
            spots.append(Spot(number, size, place, merging))
    return spots


def place_in(tx: Transaction, segment: int, message: int) -> int | None:
    """The place of a message in a segment."""
    key = message.to_bytes(8, "big")
    row = tx.one(PLACES, segment=segment, kind=Kind.PLACE, key=key)
    if row is None:
        return None
    count = len(row[0]) // 10
    messages, places = array("q"), array("H")
    messages.frombytes(row[0][: 8 * count])
    places.frombytes(row[0][8 * count :])
    found = bisect_left(messages, message)
    return places[found] if found < count and messages[found] == message else None
