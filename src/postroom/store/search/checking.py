"""Does the index agree with the messages? A sentence for each thing amiss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from postroom.store.search.digest import Digest
from postroom.store.search.formats import FORMATS
from postroom.store.search.kinds import Kind, SegmentRow
from postroom.store.search.merging import (
    Membership,
    job_messages,
    ordered_messages,
    read_messages,
)
from postroom.store.search.segments import LIVE
from postroom.store.search.sets import REMOVED, places_in
from postroom.store.transaction import Transaction

if TYPE_CHECKING:
    from postroom.store.search.build import SegmentBuilder

_AT_ONCE = 500

FORMAT = "SELECT format FROM search_segments WHERE number = :segment AND state = :live"
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

    If a message was removed since it was made, whose text is gone, its rows are still what was
    written, and its sets are compared without that one.
    """
    from postroom.store.search.build import SegmentBuilder

    number = tx.one(FORMAT, segment=segment, live=LIVE)
    numbers = job_messages(tx, [segment])
    if not numbers or number is None:
        return ()
    builder, sets = SegmentBuilder(number[0]), Membership()
    for first in range(0, len(numbers), _AT_ONCE):
        rows = read_messages(tx, numbers[first : first + _AT_ONCE])
        builder.add([row[:5] for row in rows])
        sets.add(rows)
    made, wrong = {row[:3]: row.value for row in builder.rows()}, list[str]()
    if len(numbers) == len(ordered_messages(tx, segment)):
        wrong += _wrong_rows(tx, segment, made)
    elif FORMATS[number[0]].has_digest:
        wrong += _damage(tx, segment)
    wrong += _wrong_sets(tx, segment, _expected_sets(builder, sets))
    return tuple(f"segment {segment} of the search index: {sentence}" for sentence in wrong)


def _wrong_rows(
    tx: Transaction, segment: int, expected: dict[tuple[int, bytes, int], bytes]
) -> Iterator[str]:
    for row in _stored_rows(tx, segment):
        if expected.pop(row[:3], None) != row.value:
            yield f"row {_named(row[:3])} is wrong"
    yield from (f"row {_named(place)} is missing" for place in sorted(expected))


def _damage(tx: Transaction, segment: int) -> Iterator[str]:
    """Whether the rows of a segment are those that were written."""
    digest, written = Digest(), None
    for row in _stored_rows(tx, segment):
        if row.kind == Kind.DIGEST:
            written = row
        else:
            digest.add(row)
    if digest.row() != written:
        yield "its rows are not those that were written"


def _stored_rows(tx: Transaction, segment: int) -> Iterator[SegmentRow]:
    kind, key, part = -1, b"", 0
    while rows := tx.all(ROWS, segment=segment, kind=kind, key=key, part=part, limit=_AT_ONCE):
        for row in rows:
            kind, key, part = row[0], bytes(row[1]), row[2]
            yield SegmentRow(kind, key, part, row[3])


def _expected_sets(builder: SegmentBuilder, sets: Membership) -> dict[str, set[int]]:
    """By name, the messages that are in each set."""
    numbers = {place: number for number, place in builder.places().items()}
    encoded = builder.sets | sets.encoded(builder)
    return {name: {numbers[at] for at in places_in(value)} for name, value in encoded.items()}


def _wrong_sets(tx: Transaction, segment: int, expected: dict[str, set[int]]) -> Iterator[str]:
    numbers = dict(enumerate(ordered_messages(tx, segment)))
    stored = tx.all("SELECT name, value FROM search_sets WHERE segment = :segment", segment=segment)
    found = {name: {numbers.get(at, -1) for at in places_in(value)} for name, value in stored}
    removed = found.pop(REMOVED, set())
    for name in sorted({*expected, *found}):
        if expected.get(name, set()) != found.get(name, set()) - removed:
            yield f"the set {name} is wrong"


def _named(place: tuple[int, bytes, int]) -> str:
    kind, key, part = place
    name = Kind(kind % 10 if kind < Kind.ORDER else kind).name.lower()
    return f"{name} {key.decode(errors='replace')!r} {part}"
