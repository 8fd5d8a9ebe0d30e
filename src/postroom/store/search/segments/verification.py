"""Verification: does the index agree with the messages?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from postroom.store.search.compaction.merging import (
    Membership,
    add_messages,
    live_messages,
    messages_by_doc_id,
    read_messages,
)
from postroom.store.search.segments.message_sets import REMOVED, decode_set
from postroom.store.search.segments.segment import FORMATS, LIVE, Checksum, Kind, SegmentRow
from postroom.store.transaction import Transaction

if TYPE_CHECKING:
    from postroom.store.search.segments.builder import SegmentBuilder

_BATCH = 500

FORMAT = "SELECT format FROM search_segments WHERE number = :segment AND state = :live"
LIVE_NUMBERS = "SELECT number FROM search_segments WHERE state = :live ORDER BY number"
ROWS = """
    SELECT kind, key, part, value FROM search_rows
     WHERE segment = :segment AND (kind, key, part) > (:kind, :key, :part)
     ORDER BY kind, key, part LIMIT :limit
"""


def live_segment_numbers(tx: Transaction) -> list[int]:
    return [row[0] for row in tx.all(LIVE_NUMBERS, live=LIVE)]


def check_membership(tx: Transaction) -> tuple[str, ...]:
    """Check that each message is in the buffer or in exactly one segment, and nothing else is."""
    indexed = Counter(row[0] for row in tx.all("SELECT message FROM search_buffer"))
    for segment in live_segment_numbers(tx):
        indexed.update(live_messages(tx, [segment]))
    present = {row[0] for row in tx.all("SELECT number FROM messages")}
    return (
        *(f"message number {n} is not in the search index" for n in sorted(present - {*indexed})),
        *(f"the search index has message number {n}, which does not exist"
          for n in sorted({*indexed} - present)),
        *(f"the search index has message number {n} more than once"
          for n, times in sorted(indexed.items()) if times > 1),
    )  # fmt: skip


def check_segment(tx: Transaction, segment: int) -> tuple[str, ...]:
    """Check that a segment equals one that is built now.

    If the text of a removed message is gone, only its checksum and sets are checked.
    """
    from postroom.store.search.segments.builder import SegmentBuilder

    row = tx.one(FORMAT, segment=segment, live=LIVE)
    numbers = live_messages(tx, [segment])
    if not numbers or row is None:
        return ()
    builder, sets = SegmentBuilder(row[0]), Membership()
    for first in range(0, len(numbers), _BATCH):
        add_messages(builder, sets, read_messages(tx, numbers[first : first + _BATCH]))
    expected = {built[:3]: built.value for built in builder.rows()}
    problems = list[str]()
    if len(numbers) == len(messages_by_doc_id(tx, segment)):
        problems += _row_problems(tx, segment, expected)
    elif FORMATS[row[0]].has_checksum:
        problems += _checksum_problems(tx, segment)
    problems += _set_problems(tx, segment, _expected_sets(builder, sets))
    return tuple(f"segment {segment} of the search index: {problem}" for problem in problems)


def _row_problems(
    tx: Transaction, segment: int, expected: dict[tuple[int, bytes, int], bytes]
) -> Iterator[str]:
    for row in _stored_rows(tx, segment):
        if expected.pop(row[:3], None) != row.value:
            yield f"row {_row_name(row[:3])} is wrong"
    yield from (f"row {_row_name(row_key)} is missing" for row_key in sorted(expected))


def _checksum_problems(tx: Transaction, segment: int) -> Iterator[str]:
    checksum, stored_checksum = Checksum(), None
    for row in _stored_rows(tx, segment):
        if row.kind == Kind.CHECKSUM:
            stored_checksum = row
        else:
            checksum.add(row)
    if checksum.row() != stored_checksum:
        yield "its rows are not those that were written"


def _stored_rows(tx: Transaction, segment: int) -> Iterator[SegmentRow]:
    kind, key, part = -1, b"", 0
    while rows := tx.all(ROWS, segment=segment, kind=kind, key=key, part=part, limit=_BATCH):
        for row in rows:
            kind, key, part = row[0], bytes(row[1]), row[2]
            yield SegmentRow(kind, key, part, row[3])


def _expected_sets(builder: SegmentBuilder, sets: Membership) -> dict[str, set[int]]:
    """The members of each set."""
    numbers = {doc_id: number for number, doc_id in builder.doc_ids().items()}
    encoded = builder.sets | sets.encode(builder)
    return {name: {numbers[n] for n in decode_set(value)} for name, value in encoded.items()}


def _set_problems(tx: Transaction, segment: int, expected: dict[str, set[int]]) -> Iterator[str]:
    numbers = dict(enumerate(messages_by_doc_id(tx, segment)))
    stored = tx.all("SELECT name, value FROM search_sets WHERE segment = :segment", segment=segment)
    found = {name: {numbers.get(n, -1) for n in decode_set(value)} for name, value in stored}
    removed = found.pop(REMOVED, set())
    for name in sorted({*expected, *found}):
        if expected.get(name, set()) != found.get(name, set()) - removed:
            yield f"the set {name} is wrong"


def _row_name(row_key: tuple[int, bytes, int]) -> str:
    kind, key, part = row_key
    name = Kind(kind % 10 if kind < Kind.DOC_VALUES else kind).name.lower()
    return f"{name} {key.decode(errors='replace')!r} {part}"
