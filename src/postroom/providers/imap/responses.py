"""What untagged responses say: rows of a fetch, results of a search, mailboxes, new places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import nlargest

from postroom.providers.imap.arguments import MONTHS
from postroom.providers.imap.faults import Unreadable
from postroom.providers.imap.framing import Frame
from postroom.providers.imap.status import Status, read_status
from postroom.providers.imap.values import Value, parse_values

MOST_UID = 2**32 - 1
MOST_RANGES = 50_000
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
    """What a server says of one message; keys are items in upper case, without an origin."""

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

    def number(self, item: bytes) -> int:
        found = self.items.get(item)
        return found if isinstance(found, int) else 0

    def data(self, item: bytes) -> bytes:
        """A string; a number is one, too, if it is all that a part says."""
        found = self.items.get(item)
        if isinstance(found, int):
            return b"%d" % found
        return found if isinstance(found, bytes) else b""

    @property
    def has_header_fields(self) -> bool:
        return self._header_item() != b""

    def header_fields(self) -> bytes:
        """The chosen fields of the header."""
        return self.data(self._header_item())

    def _header_item(self) -> bytes:
        """The item under which they are; servers repeat the choice in various forms."""
        names = (name for name in self.items if name.startswith(b"BODY[HEADER.FIELDS"))
        return next(names, b"")


def read_row(frame: Frame) -> Row | None:
    """Read a FETCH response; None if it is something else. Raises Unreadable."""
    found = _FETCH.match(frame.line)
    if found is None:
        return None
    values = parse_values(frame, found.end())
    pairs = values[0] if len(values) == 1 else None
    if not isinstance(pairs, list) or len(pairs) % 2:
        raise Unreadable("a FETCH response is not a list of pairs")
    items: dict[bytes, Value] = {}
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        if not isinstance(name, bytes):
            raise Unreadable("a FETCH response has an item without a name")
        items[_ORIGIN.sub(b"", name).upper()] = value
    return Row(int(found[1]), items)


def read_date(data: bytes) -> datetime | None:
    """An INTERNALDATE."""
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
class Hits:
    """The result of a search: how many, and which as ranges; None is what was not told."""

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
            count, uids = (p.search(frame.line, extended.end()) for p in (_COUNT, _ALL))
            if count is not None:
                self.count = int(count[1])
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
    if uids.count(b",") >= MOST_RANGES:
        raise Unreadable(f"a set of more than {MOST_RANGES} ranges")
    for part in uids.split(b","):
        low, _, high = part.partition(b":")
        ends = sorted((_uid(low), _uid(high or low)))
        yield ends[0], ends[1]


def _uid(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 10 or not 0 < int(digits) <= MOST_UID:
        raise Unreadable("a set with what is no UID")
    return int(digits)


@dataclass(slots=True)
class Opened:
    """A mailbox that was just selected."""

    uidvalidity: int = 0
    exists: int = 0
    is_read_only: bool = False

    def take(self, frame: Frame) -> None:
        """Read what comes with SELECT."""
        if exists := _EXISTS.match(frame.line):
            self.exists = int(exists[1])
        status = read_status(frame.line[2:])
        if status is not None and status.code == "UIDVALIDITY" and status.data.isdigit():
            self.uidvalidity = int(status.data[:10])


@dataclass(slots=True)
class NewPlace:
    """Where a message went (RFC 4315): UIDVALIDITY and UID of the new one."""

    code: str
    place: tuple[int, int] | None = None

    def take(self, frame: Frame) -> None:
        """Read the code of an untagged status.

        QUIRK: with MOVE, Dovecot tells COPYUID before the end and not with it (RFC 6851 §4.3).
        """
        status = read_status(frame.line[2:])
        if status is not None:
            self.read(status)

    def read(self, status: Status) -> None:
        found = _NEW_UID.fullmatch(status.data) if status.code == self.code else None
        if found is not None:
            self.place = int(found[1]), int(found[2])
