"""Untagged responses: FETCH, SEARCH, SELECT, STATUS and BODYSTRUCTURE."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from itertools import count, takewhile

from postroom.mail.mime.decoding import decode_unknown
from postroom.model.imap import ImapPart
from postroom.providers.imap.errors import InvalidResponse, Status, read_status
from postroom.providers.imap.syntax import MONTHS, Frame, Value, parse_values

MAX_PARTS = 1_000
_ENVELOPE = ("Date", "Subject", "From", "Sender", "Reply-To", "To", "Cc", "Bcc")
_SHOWN = ("From", "Date", "Subject", "To")


def read_structure(value: Value) -> ImapPart:
    """Read a BODYSTRUCTURE of up to MAX_PARTS parts, and number them. Raises InvalidResponse."""
    parts = count(1)

    def read(value: Value, number: str, *, is_body: bool) -> ImapPart:
        """Read a part; the single part of a whole message (*is_body*) has the number 1."""
        if next(parts) > MAX_PARTS:
            raise InvalidResponse(f"a message of more than {MAX_PARTS} parts")
        if not isinstance(value, list) or not value:
            raise InvalidResponse("a part of BODYSTRUCTURE is empty")
        # The type of a single part, or the first of several parts, may be NIL.
        if isinstance(value[0], bytes) or not any(isinstance(item, list) for item in value[:2]):
            return single(value, _inside(number, 1) if is_body else number)
        children = list(takewhile(lambda item: not isinstance(item, bytes), value))
        rest = value[len(children) :]
        return ImapPart(
            number=number,
            content_type=f"multipart/{_text(_at(rest, 0)).lower() or 'mixed'}",
            parameters=_pairs(_at(rest, 1)),
            children=tuple(
                read(child, _inside(number, place), is_body=False)
                for place, child in enumerate(children, 1)
            ),
        )

    def single(value: list[Value], number: str) -> ImapPart:
        main, sub = _text(_at(value, 0)).lower(), _text(_at(value, 1)).lower()
        content_type = f"{main or 'text'}/{sub or 'plain'}"
        size = _at(value, 6)
        if main in ("", "text") and not isinstance(size, int):
            raise InvalidResponse("a text in BODYSTRUCTURE has no size")
        embedded = _at(value, 8) if content_type in ("message/rfc822", "message/global") else None
        extra = 10 if embedded else 8 if main == "text" else 7
        disposition = _disposition(value[extra : extra + 4])
        return ImapPart(
            number=number,
            content_type=content_type,
            parameters=_pairs(_at(value, 2)),
            encoding=_text(_at(value, 5)).strip().lower(),
            size_bytes=size if isinstance(size, int) else 0,
            disposition=disposition[0],
            disposition_parameters=disposition[1],
            content_id=_text(_at(value, 3)),
            message=read(embedded, number, is_body=True) if embedded else None,
            heading=_heading(_at(value, 7)) if embedded else (),
        )

    return read(value, "", is_body=True)


def _inside(number: str, place: int) -> str:
    return f"{number}.{place}" if number else str(place)


def _at(value: list[Value], place: int) -> Value:
    return value[place] if place < len(value) else None


def _text(value: Value) -> str:
    if isinstance(value, int):
        return str(value)
    return decode_unknown(value) if isinstance(value, bytes) else ""


def _pairs(value: Value) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list):
        return ()
    texts = [_text(item) for item in value[:200]]
    return tuple(zip(texts[::2], texts[1::2], strict=False))


def _disposition(extra: list[Value]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The first list that looks like a disposition.

    QUIRK: some servers leave out the MD5 before it, or add a line count.
    """
    for value in extra:
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            kind = _text(value[0]).lower()
            if kind in ("attachment", "inline", "form-data"):
                return kind, _pairs(_at(value, 1))
    return "", ()


def _heading(envelope: Value) -> tuple[tuple[str, str], ...]:
    """The main header fields of an attached message."""
    if not isinstance(envelope, list):
        return ()
    fields = dict(zip(_ENVELOPE, envelope, strict=False))
    values = ((name, _field(fields.get(name))) for name in _SHOWN)
    return tuple((name, value) for name, value in values if value)


def _field(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(_address(item) for item in value[:20])
    return _text(value)


def _address(value: Value) -> str:
    if not isinstance(value, list) or len(value) < 4:
        return ""
    name, address = _text(value[0]), f"{_text(value[2])}@{_text(value[3])}"
    return f"{name} <{address}>" if name else address


MAX_UID = 2**32 - 1
MAX_RANGES = 50_000
_FETCH = re.compile(rb"\* (\d{1,10}) FETCH (?=\()", re.IGNORECASE)
_SEARCH = re.compile(rb"\* SEARCH((?: \d{1,10})*+) *(?:\(|$)", re.IGNORECASE)
_ESEARCH = re.compile(rb"\* ESEARCH(?: \(TAG [^)]*\))?( UID)?(?= |$)", re.IGNORECASE)
_COUNT = re.compile(rb" COUNT (\d{1,10})(?= |$)", re.IGNORECASE)
_ALL = re.compile(rb" (?:ALL|PARTIAL \(\d+:\d+) ([\d:,]+)\)?(?= |$)", re.IGNORECASE)
_EXISTS = re.compile(rb"\* (\d{1,10}) EXISTS$", re.IGNORECASE)
_ORIGIN = re.compile(rb"<\d+>$")
_NEW_UID = re.compile(rb"(\d{1,10}) (?:[\d:,*]+ )?(\d{1,10})")
_DATE = re.compile(
    rb" ?(\d{1,2})-([A-Za-z]{3})-(\d{4}) (\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)", re.ASCII
)


@dataclass(slots=True)
class Row:
    """A FETCH response; keys are items in upper case, without an origin."""

    sequence: int
    items: dict[bytes, Value]

    @property
    def uid(self) -> int:
        return self.number(b"UID")

    @property
    def flags(self) -> tuple[str, ...] | None:
        found = self.items.get(b"FLAGS")
        if not isinstance(found, list):
            return None
        return tuple(f.decode("utf-8", "replace") for f in found if isinstance(f, bytes))

    @property
    def arrived_at(self) -> datetime | None:
        return read_date(self.data(b"INTERNALDATE"))

    @property
    def is_gone(self) -> bool:
        """Whether all items are NIL, as some servers report an expunged message."""
        values = [value for item, value in self.items.items() if item != b"UID"]
        return bool(values) and all(value is None for value in values)

    def has(self, item: bytes) -> bool:
        """Whether the item is there and not NIL."""
        return self.items.get(item) is not None

    def number(self, item: bytes) -> int:
        found = self.items.get(item)
        return found if isinstance(found, int) else 0

    def data(self, item: bytes) -> bytes:
        """A string; a part that consists of digits is parsed as a number."""
        found = self.items.get(item)
        if isinstance(found, int):
            return b"%d" % found
        return found if isinstance(found, bytes) else b""

    @property
    def header_fields(self) -> bytes | None:
        """The requested header fields; servers spell the item in various forms."""
        names = (name for name in self.items if name.startswith(b"BODY[HEADER.FIELDS"))
        item = next(names, None)
        return None if item is None else self.data(item)


def read_row(frame: Frame) -> Row | None:
    """Read a FETCH response; None if the frame is another response. Raises InvalidResponse."""
    found = _FETCH.match(frame.line)
    if found is None:
        return None
    values = parse_values(frame, found.end())
    pairs = values[0] if len(values) == 1 else None
    if not isinstance(pairs, list) or len(pairs) % 2:
        raise InvalidResponse("a FETCH response is not a list of pairs")
    items: dict[bytes, Value] = {}
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(name, bytes):
            raise InvalidResponse("a FETCH response has an item without a name")
        items[_ORIGIN.sub(b"", name).upper()] = value
    return Row(int(found[1]), items)


def read_date(data: bytes) -> datetime | None:
    """Parse an INTERNALDATE; None if it is invalid."""
    found = _DATE.fullmatch(data)
    if found is None:
        return None
    day, month, year, hour, minute, second, sign, hours, minutes = found.groups()
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    try:
        number = MONTHS.index(month.decode().title()) + 1
        clock = int(hour), int(minute), int(second)
        local = datetime(int(year), number, int(day), *clock, tzinfo=UTC)
        return local + offset if sign == b"-" else local - offset
    except (ValueError, OverflowError):
        return None


@dataclass(slots=True)
class SearchResult:
    """The result of a search: the count and the UIDs as ranges, where the server reports them."""

    count: int | None = None
    ranges: list[tuple[int, int]] | None = None
    is_extended: bool = False
    _listed: list[bytes] = field(default_factory=list)

    def take(self, frame: Frame) -> None:
        """Read a SEARCH or ESEARCH response."""
        if listed := _SEARCH.match(frame.line):
            self.count = (self.count or 0) + listed[1].count(b" ")
            self._listed.append(listed[1])
        elif extended := _ESEARCH.match(frame.line):
            self.is_extended = True
            total, uids = (p.search(frame.line, extended.end()) for p in (_COUNT, _ALL))
            if total is not None:
                self.count = int(total[1])
            if uids is not None:
                self.ranges = list(_ranges(uids[1]))

    def newest(self, limit: int) -> list[int]:
        """The highest UIDs, highest first."""
        if self._listed:
            return nlargest(limit, (int(uid) for part in self._listed for uid in part.split()))
        newest: list[int] = []
        for low, high in sorted(self.ranges or (), key=lambda r: r[1], reverse=True):
            newest += range(high, max(low, high - limit) - 1, -1)
            if len(newest) >= limit:
                break
        return sorted(set(newest), reverse=True)[:limit]


def _ranges(uids: bytes) -> Iterator[tuple[int, int]]:
    if uids.count(b",") >= MAX_RANGES:
        raise InvalidResponse(f"a set of more than {MAX_RANGES} ranges")
    for part in uids.split(b","):
        low, _, high = part.partition(b":")
        ends = sorted((_uid(low), _uid(high or low)))
        yield ends[0], ends[1]


def _uid(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 10 or not 0 < int(digits) <= MAX_UID:
        raise InvalidResponse("a set contains an invalid UID")
    return int(digits)


@dataclass(slots=True)
class MailboxStatus:
    """The state of a mailbox, as SELECT and STATUS report it; 0 is unknown."""

    uidvalidity: int = 0
    uidnext: int = 0
    modseq: int = 0
    exists: int = 0
    takes_keywords: bool = False
    is_read_only: bool = False

    def take(self, frame: Frame) -> None:
        """Read an untagged response to SELECT, EXAMINE or STATUS."""
        if exists := _EXISTS.match(frame.line):
            self.exists = int(exists[1])
        elif frame.line[2:9].upper() == b"STATUS ":
            values = parse_values(frame, 9)
            pairs = values[-1] if values and isinstance(values[-1], list) else []
            for item, value in zip(pairs[::2], pairs[1::2], strict=False):
                if isinstance(item, bytes) and isinstance(value, int):
                    self._set(item.decode("ascii", "replace").upper(), value)
        elif (status := read_status(frame.line[2:])) is not None:
            if status.code == "PERMANENTFLAGS":
                self.takes_keywords = rb"\*" in status.data
            self._set(status.code, int(status.data[:19]) if status.data.isdigit() else 0)

    def _set(self, item: str, value: int) -> None:
        if name := _STATUS_FIELDS.get(item):
            setattr(self, name, value)


_STATUS_FIELDS = {
    "MESSAGES": "exists",
    "UIDNEXT": "uidnext",
    "UIDVALIDITY": "uidvalidity",
    "HIGHESTMODSEQ": "modseq",
}


@dataclass(slots=True)
class NewUid:
    """UIDVALIDITY and UID of a message that was copied, moved or appended (RFC 4315)."""

    code: str
    place: tuple[int, int] | None = None

    def take(self, frame: Frame) -> None:
        """Read an untagged status.

        QUIRK: for MOVE, Dovecot sends COPYUID in an untagged response (RFC 6851 §4.3).
        """
        status = read_status(frame.line[2:])
        if status is not None:
            self.read(status)

    def read(self, status: Status) -> None:
        found = _NEW_UID.fullmatch(status.data) if status.code == self.code else None
        if found is not None:
            self.place = int(found[1]), int(found[2])
