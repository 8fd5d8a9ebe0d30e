"""Verification: does the index agree with the messages?

Where segments can be built, each is built again and compared. Without numpy, its checksum tells
whether it has the rows that were written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from postroom.extras import is_installed
from postroom.store.search.segments import message_sets
from postroom.store.search.segments.message_sets import decode_set
from postroom.store.search.segments.messages import live_messages, read_messages, sets_of
from postroom.store.search.segments.segment import (
    FORMATS,
    LIVE,
    Kind,
    SegmentRow,
    checksum_row,
    messages_by_doc_id,
    row_digest,
    segment_numbers,
)
from postroom.store.transaction import Row, Transaction

_BATCH = 500

FORMAT = "SELECT format FROM search_segments WHERE number = :segment AND state = :live"
ROWS = """
    SELECT kind, key, part, value FROM search_rows
     WHERE segment = :segment AND (kind, key, part) > (:kind, :key, :part)
     ORDER BY kind, key, part LIMIT :limit
"""

RowKey = tuple[int, bytes, int]


def check_membership(tx: Transaction) -> tuple[str, ...]:
    """Check that each message is in the buffer or in exactly one segment, and nothing else is."""
    indexed = Counter(row[0] for row in tx.all("SELECT message FROM search_buffer"))
    for segment in segment_numbers(tx, LIVE):
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
    row = tx.one(FORMAT, segment=segment, live=LIVE)
    numbers, by_doc_id = live_messages(tx, [segment]), messages_by_doc_id(tx, segment)
    if not numbers or row is None:
        return ()
    expected_rows, expected_sets = _built(tx, numbers, row[0])
    problems = list[str]()
    if expected_rows and len(numbers) == len(by_doc_id):
        problems += _row_problems(tx, segment, expected_rows)
    elif FORMATS[row[0]].has_checksum:
        problems += _checksum_problems(tx, segment)
    problems += _set_problems(tx, segment, expected_sets, by_doc_id)
    return tuple(f"segment {segment} of the search index: {problem}" for problem in problems)


def _built(
    tx: Transaction, numbers: Sequence[int], format_number: int
) -> tuple[dict[RowKey, bytes], dict[str, set[int]]]:
    """The rows and sets of a segment that is built now; no rows if numpy is not installed."""
    if not is_installed("index"):
        return {}, _sets_of_messages(_read(tx, numbers))
    from postroom.store.search.segments.builder import SegmentBuilder

    builder = SegmentBuilder(format_number)
    for messages in _read(tx, numbers):
        builder.add(messages)
    rows = {built[:3]: built.value for built in builder.rows()}
    return rows, _decode_sets(builder.sets(), builder.by_doc_id())


def _read(tx: Transaction, numbers: Sequence[int]) -> Iterator[list[Row]]:
    for first in range(0, len(numbers), _BATCH):
        yield read_messages(tx, numbers[first : first + _BATCH])


def _sets_of_messages(batches: Iterator[list[Row]]) -> dict[str, set[int]]:
    members: dict[str, set[int]] = {}
    for messages in batches:
        for message in messages:
            for name in sets_of(message):
                members.setdefault(name, set()).add(message[0])
    return members


def _row_problems(tx: Transaction, segment: int, expected: Mapping[RowKey, bytes]) -> Iterator[str]:
    missing = dict(expected)
    for row in _stored_rows(tx, segment):
        if missing.pop(row[:3], None) != row.value:
            yield f"row {_row_name(row[:3])} is wrong"
    yield from (f"row {_row_name(row_key)} is missing" for row_key in sorted(missing))


def _checksum_problems(tx: Transaction, segment: int) -> Iterator[str]:
    digests, stored_checksum = 0, None
    for row in _stored_rows(tx, segment):
        if row.kind == Kind.CHECKSUM:
            stored_checksum = row
        else:
            digests += row_digest(row)
    if checksum_row(digests) != stored_checksum:
        yield "its rows are not those that were written"


def _stored_rows(tx: Transaction, segment: int) -> Iterator[SegmentRow]:
    kind, key, part = -1, b"", 0
    while rows := tx.all(ROWS, segment=segment, kind=kind, key=key, part=part, limit=_BATCH):
        for row in rows:
            kind, key, part = row[0], bytes(row[1]), row[2]
            yield SegmentRow(kind, key, part, row[3])


def _set_problems(
    tx: Transaction, segment: int, expected: Mapping[str, set[int]], by_doc_id: Sequence[int]
) -> Iterator[str]:
    stored = tx.all("SELECT name, value FROM search_sets WHERE segment = :segment", segment=segment)
    found = _decode_sets(dict(stored), by_doc_id)
    removed = found.pop(message_sets.REMOVED, set())
    if not is_installed("index"):
        # Which messages have a token that is too long is known only after building.
        found = {name: own for name, own in found.items() if not message_sets.is_of_rows(name)}
    for name in sorted({*expected, *found}):
        if expected.get(name, set()) != found.get(name, set()) - removed:
            yield f"the set {name} is wrong"


def _decode_sets(sets: Mapping[str, bytes], by_doc_id: Sequence[int]) -> dict[str, set[int]]:
    """The members of each set; -1 for a doc id that does not exist."""
    numbers = dict(enumerate(by_doc_id))
    return {name: {numbers.get(n, -1) for n in decode_set(value)} for name, value in sets.items()}


def _row_name(row_key: RowKey) -> str:
    kind, key, part = row_key
    name = Kind(kind % 10 if kind < Kind.DOC_VALUES else kind).name.lower()
    return f"{name} {key.decode(errors='replace')!r} {part}"
