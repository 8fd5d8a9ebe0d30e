"""Segments: format versions, kinds of rows, checksum, and where the messages are. See README.md."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

from postroom.model.mail.storage import FIELD_BORDER
from postroom.model.values import dataclass
from postroom.store.transaction import Transaction


class Kind(IntEnum):
    """Kinds of rows. Those below 100 exist once for each stream of text, `STREAM` apart."""

    CACHED = 0
    SUFFIX = 1
    SMALL_POSTINGS = 2
    LARGE_POSTINGS = 3
    ENDING = 4
    BOUNDARY = 5
    HOT_BIGRAM = 6
    DOC_VALUES = 100
    DOC_IDS = 101
    CHECKSUM = 102


STREAM = 10
SEARCHABLE, SENDERS, RECIPIENTS, SUBJECT = range(4)
COLUMNS = (
    "searchable",
    "senders",
    "recipients",
    f"substr(searchable, 1, instr(searchable || '{FIELD_BORDER}', '{FIELD_BORDER}') - 1)",
)
"""The folded texts of a message, one stream each; the subject is the first field of the first."""

ADJACENT, AFTER_SPACE = b"\0", b"\1"
"""Precedes each following token in a boundary key: is there a space before it?"""


class SegmentRow(NamedTuple):
    kind: int
    key: bytes
    part: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Format:
    """What a segment stores.

    `lookahead` is, for each stream, the number of tokens stored after a token boundary; a stream
    without one is not stored. A long token is stored in overlapping chunks, or else only its end.
    """

    lookahead: tuple[int, ...]
    has_chunks: bool
    has_checksum: bool


FORMATS = {
    1: Format((4, 4, 4), has_chunks=False, has_checksum=False),
    2: Format((4, 12, 12), has_chunks=True, has_checksum=True),
    3: Format((4, 12, 12, 12), has_chunks=True, has_checksum=True),
}
"""All formats that can be read. Addresses have many tokens, so format 2 looks further ahead; format
3 has a stream of subjects."""

CURRENT_FORMAT = max(FORMATS)
FORMAT_WITH_FLAGS = 3
"""Segments of earlier formats have sets of flags only if they have the set `flags`."""

MAX_WHOLE_BYTES = 40
"""A string of at most this many bytes inside a token is inside one of its chunks."""

_CHECKSUM_BYTES = 16


def row_digest(row: SegmentRow) -> int:
    kind, key, part, value = row
    digest = blake2b(b"%d %d %d " % (kind, part, len(key)), digest_size=_CHECKSUM_BYTES)
    digest.update(key)
    digest.update(value)
    return int.from_bytes(digest.digest(), "big")


def checksum_row(digests: int) -> SegmentRow:
    """The checksum: the sum of the digests of all other rows, in any order.

    It detects damage where a segment cannot be rebuilt for comparison, because the text of a
    deleted message is gone.
    """
    value = (digests % (1 << 8 * _CHECKSUM_BYTES)).to_bytes(_CHECKSUM_BYTES, "big")
    return SegmentRow(Kind.CHECKSUM, b"", 0, value)


BUILDING, LIVE, DROPPED = range(3)
"""Only live segments are searched; the rows of dropped ones are being deleted."""

LIVE_SEGMENTS = """
    SELECT number, size, oldest, newest, format FROM search_segments
     WHERE state = 1 ORDER BY newest DESC
"""
WITH_MESSAGES = """
    SELECT number, size, merging, first, last FROM search_segments
     WHERE state = 1 AND first <= :last AND last >= :first
"""
NUMBERS = """
    SELECT value FROM search_rows
     WHERE segment = :segment AND kind = :kind AND key = :key AND part = 1
"""
DOC_ID_ROW = """
    SELECT value FROM search_rows
     WHERE segment = :segment AND kind = :kind AND key <= :key ORDER BY key DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages sorted by date; a message is identified by its doc id, its index in that order."""

    number: int
    size: int
    oldest: int
    newest: int
    format: int


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """The description of a finished segment."""

    size: int
    text_bytes: int
    first: int
    last: int
    oldest: int
    newest: int
    format: int


@dataclass(frozen=True, slots=True)
class DocLocation:
    """Where a message is: its segment, its doc id there, and what that segment is merged into."""

    segment: int
    size: int
    doc_id: int
    merging: int | None


def segment_numbers(tx: Transaction, state: int | None = None) -> list[int]:
    """All segments, or those in one state."""
    rows = tx.all("SELECT number, state FROM search_segments ORDER BY number")
    return [number for number, own in rows if state is None or own == state]


def live_segments(tx: Transaction) -> list[Segment]:
    """All live segments, those with the newest mail first."""
    return [Segment(*row) for row in tx.all(LIVE_SEGMENTS)]


def locate_messages(tx: Transaction, messages: Sequence[int]) -> Iterator[tuple[int, DocLocation]]:
    """Find sorted messages; one that was indexed again is in more than one segment."""
    if not messages:
        return
    rows = tx.all(WITH_MESSAGES, first=messages[0], last=messages[-1])
    for number, size, merging, first, last in rows:
        own = messages[bisect_left(messages, first) : bisect_right(messages, last)]
        for message, doc_id in find_doc_ids(tx, number, own):
            yield message, DocLocation(number, size, doc_id, merging)


def messages_by_doc_id(tx: Transaction, segment: int) -> array[int]:
    """All messages of a segment, including removed ones."""
    row = tx.one(NUMBERS, segment=segment, kind=Kind.DOC_VALUES, key=b"")
    return array("q", row[0] if row else b"")


def find_doc_ids(
    tx: Transaction, segment: int, messages: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Those of some sorted messages that are in a segment, with their doc ids."""
    known, doc_ids = array("q"), array("H")
    for message in messages:
        if not known or message > known[-1]:
            key = message.to_bytes(8, "big")
            row = tx.one(DOC_ID_ROW, segment=segment, kind=Kind.DOC_IDS, key=key)
            value = row[0] if row else b""
            end = 8 * (len(value) // 10)
            known, doc_ids = array("q", value[:end]), array("H", value[end:])
        found = bisect_left(known, message)
        if found < len(known) and known[found] == message:
            yield message, doc_ids[found]
