"""Segments: who they are, and where in them a message is."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from postroom.store.search.kinds import Kind
from postroom.store.transaction import Transaction

BUILDING, LIVE, GONE = range(3)
"""A segment is searched while it is live; the rows of one that is gone are being removed."""

LIVE_SEGMENTS = """
    SELECT number, size, oldest, newest, format FROM search_segments
     WHERE state = 1 ORDER BY newest DESC
"""
WITH_MESSAGES = """
    SELECT number, size, merging, first, last FROM search_segments
     WHERE state = 1 AND first <= :last AND last >= :first
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
    format: int


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


def spots_of(tx: Transaction, messages: Sequence[int]) -> Iterator[tuple[int, Spot]]:
    """The places of some messages, in order; one that was indexed again has more than one."""
    if not messages:
        return
    rows = tx.all(WITH_MESSAGES, first=messages[0], last=messages[-1])
    for number, size, merging, first, last in rows:
        own = messages[bisect_left(messages, first) : bisect_right(messages, last)]
        for message, place in find_places(tx, number, own):
            yield message, Spot(number, size, place, merging)


def find_places(
    tx: Transaction, segment: int, messages: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Those of some messages, in order, that are in a segment, and their places."""
    known, places = array("q"), array("H")
    for message in messages:
        if not known or message > known[-1]:
            key = message.to_bytes(8, "big")
            row = tx.one(PLACES, segment=segment, kind=Kind.PLACE, key=key)
            value = row[0] if row else b""
            end = 8 * (len(value) // 10)
            known, places = array("q", value[:end]), array("H", value[end:])
        found = bisect_left(known, message)
        if found < len(known) and known[found] == message:
            yield message, places[found]
