"""Commands for sync: CONDSTORE and QRESYNC (RFC 7162), STATUS, CREATE."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from postroom.providers.imap.client import Client
from postroom.providers.imap.errors import InvalidResponse, Refused
from postroom.providers.imap.responses import MAX_RANGES, Position, Row, read_row
from postroom.providers.imap.stream import Frame
from postroom.providers.imap.syntax import mailbox, quoted

MAX_VANISHED = 1_000
_VANISHED = re.compile(rb"\* VANISHED (?:\(EARLIER\) )?([\d:,]+)$", re.IGNORECASE)


async def status_of(client: Client, name: bytes) -> Position:
    """The state of a mailbox, with its modification sequence if the server has one."""
    modseq = b" HIGHESTMODSEQ" if client.can("CONDSTORE") else b""
    return await client.status(name, b"MESSAGES UIDNEXT UIDVALIDITY" + modseq)


async def enable_qresync(client: Client) -> bool:
    """Enable QRESYNC, which reports vanished messages; False if the server cannot."""
    if not client.can("QRESYNC") or not client.can("ENABLE"):
        return False
    try:
        await client.connection.run("ENABLE", b"QRESYNC")
    except Refused:
        return False
    return True


@dataclass(slots=True)
class Vanished:
    """Vanished UIDs as ranges, since there may be four billion of them."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def take(self, frame: Frame) -> bool:
        found = _VANISHED.match(frame.line)
        if found is None:
            return False
        self.ranges += _ranges(found[1])
        if len(self.ranges) > MAX_RANGES:
            raise InvalidResponse(f"more than {MAX_RANGES} ranges of messages that vanished")
        return True

    def uids(self) -> list[int] | None:
        """The vanished UIDs; None if there are many, as servers also report UIDs never used."""
        if sum(high - low + 1 for low, high in self.ranges) > MAX_VANISHED:
            return None
        return sorted({uid for low, high in self.ranges for uid in range(low, high + 1)})

    def among(self, uids: Iterable[int]) -> list[int]:
        """Those of some UIDs that vanished."""
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
    """Fetch the messages below a UID that changed since a modification sequence."""
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
    """Create a mailbox unless it exists."""
    try:
        await client.connection.run("CREATE", mailbox(name), literals=client.literals)
    except Refused as refusal:
        if refusal.code != "ALREADYEXISTS" and "exist" not in refusal.text.lower():
            raise


async def find_message_id(client: Client, message_id: str) -> int | None:
    """The newest message of the open mailbox with this Message-ID."""
    keys = [b"HEADER", b"MESSAGE-ID", quoted(message_id.encode("ascii", "ignore"))]
    result = await client.search(keys)
    newest = result.newest(1)
    return newest[0] if newest else None
