"""Building a segment from messages, and verification: does the index agree with the messages?"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from postroom.model.storage import FIELD_BORDER
from postroom.store.search.postings.boundary_writer import boundary_rows, ending_rows
from postroom.store.search.postings.term_postings import collect_postings, term_rows
from postroom.store.search.postings.token_pairs import find_endings
from postroom.store.search.segments import message_sets
from postroom.store.search.segments.message_sets import decode_set
from postroom.store.search.segments.segment import (
    COLUMNS,
    CURRENT_FORMAT,
    FORMATS,
    LIVE,
    STREAM,
    SUBJECT,
    BuiltSegment,
    Kind,
    SegmentRow,
    checksum_row,
    row_digest,
    segment_numbers,
)
from postroom.store.search.segments.snapshot import encode_doc_ids
from postroom.store.search.tokens.arrays import Int
from postroom.store.search.tokens.tokenizer import TokenizedTexts, Tokenizer
from postroom.store.sql.values import any_of, caseless, flag_names, from_text
from postroom.store.transaction import Row, Transaction

_BATCH = 500
_DOC_IDS_PER_ROW = 400

NUMBERS = """
    SELECT value FROM search_rows
     WHERE segment = :segment AND kind = :kind AND key = :key AND part = 1
"""
MESSAGES = f"""
    SELECT m.number, m.date, b.{", b.".join(COLUMNS[:SUBJECT])},
           m.inbox, m.is_hidden, m.has_attachment, m.mailboxes, m.labels, m.flags
      FROM messages m JOIN search_texts b ON +b.inbox = +m.inbox AND b.message = m.number
     WHERE m.number {{among}} ORDER BY m.number
"""
FORMAT = "SELECT format FROM search_segments WHERE number = :segment AND state = :live"
ROWS = """
    SELECT kind, key, part, value FROM search_rows
     WHERE segment = :segment AND (kind, key, part) > (:kind, :key, :part)
     ORDER BY kind, key, part LIMIT :limit
"""


def live_messages(tx: Transaction, sources: Sequence[int]) -> list[int]:
    """The messages of some segments without tombstones."""
    found: list[int] = []
    for source in sources:
        numbers, tombstones = messages_by_doc_id(tx, source), message_sets.tombstones(tx, source)
        found += [number for doc_id, number in enumerate(numbers) if doc_id not in tombstones]
    return sorted(found)


def messages_by_doc_id(tx: Transaction, segment: int) -> array[int]:
    """All messages of a segment, including removed ones."""
    row = tx.one(NUMBERS, segment=segment, kind=Kind.DOC_VALUES, key=b"")
    return array("q", row[0] if row else b"")


def read_messages(tx: Transaction, numbers: Sequence[int]) -> list[Row]:
    """What `SegmentBuilder.add` needs of some messages."""
    among, params = any_of("number", numbers)
    return tx.all(MESSAGES.format(among=among), **params)


class SegmentBuilder:
    """Takes messages in any order and yields the rows and sets of their segment."""

    def __init__(self, format_number: int = CURRENT_FORMAT) -> None:
        self._numbers, self._dates = array("q"), array("q")
        self._format, form = format_number, FORMATS[format_number]
        self._streams = [Tokenizer(n, has_chunks=form.has_chunks) for n in form.lookahead]
        self.text_bytes = 0
        self._members: dict[str, list[int]] = {}
        self._truncated: dict[str, bytes] = {}

    def add(self, messages: Sequence[Row]) -> None:
        """Add messages as `read_messages` returns them."""
        self._numbers.extend(message[0] for message in messages)
        self._dates.extend(message[1] for message in messages)
        for stream, tokenizer in enumerate(self._streams):
            encoded = [_text_of(message, stream).encode() for message in messages]
            tokenizer.add(encoded)
            self.text_bytes += sum(map(len, encoded))
        for number, *_, inbox, is_hidden, has_attachment, mailboxes, labels, flags in messages:
            names = message_sets.mutable_sets(
                is_hidden=bool(is_hidden),
                mailboxes=map(caseless, from_text(mailboxes)),
                labels=map(caseless, from_text(labels)),
                flags=flag_names(flags),
            )
            names.add(message_sets.inbox_set(inbox))
            if has_attachment:
                names.add(message_sets.HAS_ATTACHMENT)
            for name in names:
                self._members.setdefault(name, []).append(number)

    def built(self) -> BuiltSegment:
        numbers, dates = self._numbers or (0,), self._dates or (0,)
        size = len(self._numbers)
        bounds = min(numbers), max(numbers), min(dates), max(dates)
        return BuiltSegment(size, self.text_bytes, *bounds, self._format)

    def rows(self) -> Iterator[SegmentRow]:
        """All rows of the segment. No message can be added after them."""
        digests, has_checksum = 0, FORMATS[self._format].has_checksum
        for row in self._rows():
            digests += row_digest(row) if has_checksum else 0
            yield row
        if has_checksum:
            yield checksum_row(digests)

    def _rows(self) -> Iterator[SegmentRow]:
        dates, numbers = np.array(self._dates, "<i8"), np.array(self._numbers, "<i8")
        order = np.lexsort((numbers, dates))
        doc_ids = np.empty(len(order), np.int64)
        doc_ids[order] = np.arange(len(order))
        yield SegmentRow(Kind.DOC_VALUES, b"", 0, dates[order].tobytes())
        yield SegmentRow(Kind.DOC_VALUES, b"", 1, numbers[order].tobytes())
        yield from _doc_id_rows(numbers, doc_ids)
        streams, self._streams = self._streams, []
        for stream, tokenizer in enumerate(streams):
            text = tokenizer.finish(doc_ids)
            if len(text.truncated):
                name = message_sets.truncated_set(stream)
                self._truncated[name] = encode_doc_ids(text.truncated, len(order))
            for row in _stream_rows(text, len(order)):
                yield row._replace(kind=STREAM * stream + row.kind)
            text.close()

    def sets(self) -> dict[str, bytes]:
        """All sets, encoded; call this after all rows are yielded."""
        ordered = sorted(zip(self._dates, self._numbers, strict=True))
        doc_ids = {number: doc_id for doc_id, (_, number) in enumerate(ordered)}
        return self._truncated | {
            name: encode_doc_ids(np.array(sorted(doc_ids[n] for n in members)), len(doc_ids))
            for name, members in sorted(self._members.items())
        }


def _text_of(message: Row, stream: int) -> str:
    """One text of a message as `read_messages` returns it."""
    if stream == SUBJECT:
        return str(message[2]).partition(FIELD_BORDER)[0]
    return str(message[2 + stream])


def _doc_id_rows(numbers: Int, doc_ids: Int) -> Iterator[SegmentRow]:
    """Doc ids by message number; read without numpy."""
    order = np.argsort(numbers)
    for first in range(0, len(order), _DOC_IDS_PER_ROW):
        chosen = order[first : first + _DOC_IDS_PER_ROW]
        own = numbers[chosen]
        value = own.astype("<i8").tobytes() + doc_ids[chosen].astype("<u2").tobytes()
        yield SegmentRow(Kind.DOC_IDS, int(own[0]).to_bytes(8, "big"), 0, value)


def _stream_rows(text: TokenizedTexts, size: int) -> Iterator[SegmentRow]:
    """The rows of one stream of text."""
    if not len(text.terms):
        return
    yield from term_rows(text.terms, collect_postings(text), size)
    endings = find_endings(text.terms)
    yield from ending_rows(endings)
    yield from boundary_rows(text, endings, size)


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
    builder = SegmentBuilder(row[0])
    for first in range(0, len(numbers), _BATCH):
        builder.add(read_messages(tx, numbers[first : first + _BATCH]))
    expected = {built[:3]: built.value for built in builder.rows()}
    problems = list[str]()
    if len(numbers) == len(by_doc_id):
        problems += _row_problems(tx, segment, expected)
    elif FORMATS[row[0]].has_checksum:
        problems += _checksum_problems(tx, segment)
    expected_by_doc_id = np.frombuffer(expected[Kind.DOC_VALUES, b"", 1], "<i8").tolist()
    expected_sets = _decode_sets(builder.sets(), expected_by_doc_id)
    problems += _set_problems(tx, segment, expected_sets, by_doc_id)
    return tuple(f"segment {segment} of the search index: {problem}" for problem in problems)


def _row_problems(
    tx: Transaction, segment: int, expected: Mapping[tuple[int, bytes, int], bytes]
) -> Iterator[str]:
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
    for name in sorted({*expected, *found}):
        if expected.get(name, set()) != found.get(name, set()) - removed:
            yield f"the set {name} is wrong"


def _decode_sets(sets: Mapping[str, bytes], by_doc_id: Sequence[int]) -> dict[str, set[int]]:
    """The members of each set; -1 for a doc id that does not exist."""
    numbers = dict(enumerate(by_doc_id))
    return {name: {numbers.get(n, -1) for n in decode_set(value)} for name, value in sets.items()}


def _row_name(row_key: tuple[int, bytes, int]) -> str:
    kind, key, part = row_key
    name = Kind(kind % 10 if kind < Kind.DOC_VALUES else kind).name.lower()
    return f"{name} {key.decode(errors='replace')!r} {part}"
