"""Commands for whoever keeps a copy of a mailbox: CONDSTORE and QRESYNC (RFC 7162), STATUS."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from postroom.providers.imap.arguments import mailbox, quoted
from postroom.providers.imap.client import Client
from postroom.providers.imap.faults import Refused, Unreadable
from postroom.providers.imap.framing import Frame
from postroom.providers.imap.responses import MOST_RANGES, Row, read_row
from postroom.providers.imap.status import read_status
from postroom.providers.imap.values import parse_values

FEW = 1_000
_VANISHED = re.compile(rb"\* VANISHED (?:\(EARLIER\) )?([\d:,]+)$", re.IGNORECASE)
_EXISTS = re.compile(rb"\* (\d{1,10}) EXISTS$", re.IGNORECASE)


@dataclass(slots=True)
class Position:
    """Where a mailbox stands: what its next message and its next change will be numbered."""

    uidvalidity: int = 0
    uidnext: int = 0
    modseq: int = 0
    exists: int = 0
    takes_keywords: bool = False

    def take(self, frame: Frame) -> None:
        """Read what comes with SELECT or EXAMINE."""
        if exists := _EXISTS.match(frame.line):
            self.exists = int(exists[1])
        status = read_status(frame.line[2:])
        if status is None:
            return
        if status.code == "PERMANENTFLAGS":
            self.takes_keywords = rb"\*" in status.data
        number = int(status.data[:19]) if status.data.isdigit() else 0
        if status.code == "UIDVALIDITY":
            self.uidvalidity = number
        elif status.code == "UIDNEXT":
            self.uidnext = number
        elif status.code == "HIGHESTMODSEQ":
            self.modseq = number


async def open_at(client: Client, name: bytes, *, for_writing: bool = False) -> Position:
    """Open a mailbox and see where it stands."""
    position = Position()
    extras = [b"(CONDSTORE)"] if client.can("CONDSTORE") else []
    await client.connection.run(
        "SELECT" if for_writing else "EXAMINE",
        mailbox(name),
        *extras,
        take=position.take,
        literals=client.literals,
    )
    return position


async def status_of(client: Client, name: bytes) -> Position:
    """Where a mailbox stands, without opening it."""
    position = Position()

    def take(frame: Frame) -> None:
        if frame.line[2:9].upper() != b"STATUS ":
            return
        values = parse_values(frame, 9)
        pairs = values[-1] if values and isinstance(values[-1], list) else []
        for item, value in zip(pairs[::2], pairs[1::2], strict=False):
            field_name = _STATUS_ITEMS.get(item.upper() if isinstance(item, bytes) else b"")
            if field_name and isinstance(value, int):
                setattr(position, field_name, value)

    items = b"MESSAGES UIDNEXT UIDVALIDITY" + (
        b" HIGHESTMODSEQ" if client.can("CONDSTORE") else b""
    )
    await client.connection.run(
        "STATUS", mailbox(name), b"(" + items + b")", take=take, literals=client.literals
    )
    return position


_STATUS_ITEMS = {
    b"MESSAGES": "exists",
    b"UIDNEXT": "uidnext",
    b"UIDVALIDITY": "uidvalidity",
    b"HIGHESTMODSEQ": "modseq",
}


async def enable_qresync(client: Client) -> bool:
    """Have the server tell which messages vanished; False if it cannot."""
    if not client.can("QRESYNC") or not client.can("ENABLE"):
        return False
    try:
        await client.connection.run("ENABLE", b"QRESYNC")
    except Refused:
        return False
    return True


@dataclass(slots=True)
class Vanished:
    """UIDs that a server says are gone, as ranges: there may be four billion of them."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def take(self, frame: Frame) -> bool:
        found = _VANISHED.match(frame.line)
        if found is None:
            return False
        self.ranges += _ranges(found[1])
        if len(self.ranges) > MOST_RANGES:
            raise Unreadable(f"more than {MOST_RANGES} ranges of messages that vanished")
        return True

    def few(self) -> list[int] | None:
        """Those that are gone, or None if they are many: servers may name what never was there."""
        if sum(high - low + 1 for low, high in self.ranges) > FEW:
            return None
        return sorted({uid for low, high in self.ranges for uid in range(low, high + 1)})

    def among(self, uids: Iterable[int]) -> list[int]:
        """Those of some UIDs that are gone."""
        self.ranges.sort()
        starts = [low for low, _ in self.ranges]
        ends = list(accumulate((high for _, high in self.ranges), max))
        places = ((uid, bisect_right(starts, uid) - 1) for uid in uids)
        return [uid for uid, place in places if place >= 0 and uid <= ends[place]]


def _ranges(uids: bytes) -> Iterator[tuple[int, int]]:
    for part in uids.split(b","):
        low, _, high = part.partition(b":")
        if low.isdigit() and (high or low).isdigit() and len(low) <= 10 and len(high) <= 10:
            ends = sorted((int(low), int(high or low)))
            yield ends[0], ends[1]


async def fetch_changed(
    client: Client,
    below: int,
    items: bytes,
    since: int,
    take: Callable[[Row], None],
    *,
    with_vanished: bool,
) -> Vanished:
    """Fetch what changed since a modification sequence, of messages below a UID."""
    vanished = Vanished()

    def take_frame(frame: Frame) -> None:
        if not vanished.take(frame) and (row := read_row(frame)) is not None:
            take(row)

    modifier = b"(CHANGEDSINCE %d%s)" % (since, b" VANISHED" if with_vanished else b"")
    await client.connection.run(
        "UID FETCH", b"1:%d" % max(below - 1, 1), b"(" + items + b")", modifier, take=take_frame
    )
    return vanished


async def create(client: Client, name: bytes) -> None:
    """Make a mailbox; one that is there is good, too."""
    try:
        await client.connection.run("CREATE", mailbox(name), literals=client.literals)
    except Refused as refusal:
        if refusal.code != "ALREADYEXISTS" and "exist" not in refusal.text.lower():
            raise


async def find_message_id(client: Client, message_id: str) -> int | None:
    """The newest message of the open mailbox with this Message-ID."""
    keys = [b"HEADER", b"MESSAGE-ID", quoted(message_id.encode("ascii", "ignore"))]
    hits = await client.search(keys)
    newest = hits.newest(1)
    return newest[0] if newest else None
