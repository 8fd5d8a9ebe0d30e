"""Does the index agree with the messages? A sentence for each thing amiss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from postroom.store.search.formats import NEWEST
from postroom.store.search.kinds import Kind
from postroom.store.search.merging import Membership, job_messages, read_messages
from postroom.store.search.segments import LIVE
from postroom.store.search.sets import READ_SET, REMOVED, places_in
from postroom.store.transaction import Transaction

_AT_ONCE = 500

LIVE_NUMBERS = "SELECT number FROM search_segments WHERE state = :live ORDER BY number"
ROWS = """
    SELECT kind, key, part, value FROM search_rows
     WHERE segment = :segment AND (kind, key, part) > (:kind, :key, :part)
     ORDER BY kind, key, part LIMIT :limit
"""


def live_numbers(tx: Transaction) -> list[int]:
    """The segments that searches use."""
    return [row[0] for row in tx.all(LIVE_NUMBERS, live=LIVE)]


def check_membership(tx: Transaction) -> tuple[str, ...]:
    """Whether each message is in the tail or in one segment, and nothing else is."""
    indexed = Counter(row[0] for row in tx.all("SELECT message FROM search_tail"))
    for segment in live_numbers(tx):
        indexed.update(job_messages(tx, [segment]))
    present = {row[0] for row in tx.all("SELECT number FROM messages")}
    return (
        *(f"message number {n} is not in the search index" for n in sorted(present - {*indexed})),
        *(f"the search index has message number {n}, which does not exist"
          for n in sorted({*indexed} - present)),
        *(f"the search index has message number {n} more than once"
          for n, times in sorted(indexed.items()) if times > 1),
    )  # fmt: skip


def check_segment(tx: Transaction, segment: int) -> tuple[str, ...]:
    """Whether a segment is what it would be if it were made now.

    Its rows are compared only if no message was removed since it was made, because the text
    of that one is gone.
    """
    from postroom.store.search.build import SegmentBuilder

    made = tx.one("SELECT format FROM search_segments WHERE number = :number", number=segment)
    builder, sets = SegmentBuilder(made[0] if made else NEWEST), Membership()
    numbers = job_messages(tx, [segment])
    removed = tx.one(READ_SET, name=REMOVED, segment=segment)
    if not numbers or segment not in live_numbers(tx):
        return ()
    for first in range(0, len(numbers), _AT_ONCE):
        rows = read_messages(tx, numbers[first : first + _AT_ONCE])
        builder.add([row[:5] for row in rows])
        sets.add(rows)
    if removed is not None and places_in(removed[0]):
        return ()
    wrong = _wrong_rows(tx, segment, {row[:3]: row[3] for row in builder.rows()})
    expected = {
        name: places_in(value) for name, value in (builder.sets | sets.encoded(builder)).items()
    }
    stored = tx.all("SELECT name, value FROM search_sets WHERE segment = :segment", segment=segment)
    found = {name: places for name, value in stored if (places := places_in(value))}
    names = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    return (
        *(f"segment {segment} of the search index: {sentence}" for sentence in wrong),
        *(f"segment {segment} of the search index: the set {name} is wrong" for name in names),
    )


def _wrong_rows(
    tx: Transaction, segment: int, expected: dict[tuple[int, bytes, int], bytes]
) -> Iterator[str]:
    last: tuple[int, bytes, int] = (-1, b"", 0)
    while rows := tx.all(
        ROWS, segment=segment, kind=last[0], key=last[1], part=last[2], limit=_AT_ONCE
    ):
        for kind, key, part, value in rows:
            last = (kind, bytes(key), part)
            if expected.pop(last, None) != value:
                yield f"row {_named(last)} is wrong"
    yield from (f"row {_named(place)} is missing" for place in sorted(expected))


def _named(place: tuple[int, bytes, int]) -> str:
    kind, key, part = place
    name = Kind(kind % 10 if kind < Kind.ORDER else kind).name.lower()
    return f"{name} {key.decode(errors='replace')!r} {part}"
