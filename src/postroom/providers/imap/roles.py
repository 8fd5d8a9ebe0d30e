"""Which mailbox of a server is which of ours, whatever language its name is in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from postroom.model.inbox import ARCHIVE, DRAFTS, INBOX, JUNK, SENT, TRASH
from postroom.providers.imap.client import Listed
from postroom.providers.imap.names import decode_name

_USES = {
    r"\sent": SENT,
    r"\drafts": DRAFTS,
    r"\archive": ARCHIVE,
    r"\junk": JUNK,
    r"\trash": TRASH,
}
_NAMES = {
    "sent": SENT,
    "sent items": SENT,
    "sent messages": SENT,
    "sent mail": SENT,
    "drafts": DRAFTS,
    "archive": ARCHIVE,
    "archives": ARCHIVE,
    "junk": JUNK,
    "junk e-mail": JUNK,
    "junk email": JUNK,
    "spam": JUNK,
    "bulk mail": JUNK,
    "trash": TRASH,
    "deleted items": TRASH,
    "deleted messages": TRASH,
    "bin": TRASH,
}
"""What such mailboxes are called where a server has no SPECIAL-USE (RFC 6154)."""

_VIRTUAL = frozenset((r"\all", r"\flagged", r"\important"))
_CLOSED = frozenset((r"\noselect", r"\nonexistent"))


@dataclass(frozen=True, slots=True)
class Box:
    """A mailbox: its name on the wire, and ours for it."""

    wire: bytes
    name: str
    delimiter: str


def boxes_of(listed: Iterable[Listed]) -> list[Box]:
    """The mailboxes that hold mail, Inbox first and Sent next; each name is used once."""
    rows = [row for row in listed if not row.attributes & (_CLOSED | _VIRTUAL)]
    taken: dict[str, Box] = {}
    named = [(row, _use_of(row)) for row in rows]
    for row, use in named:
        if use is not None and use not in taken:
            taken[use] = Box(row.name, use, row.delimiter or "/")
    wires = {box.wire for box in taken.values()}
    for row in rows:
        if row.name not in wires:
            name = _plain_name(row)
            standard = _NAMES.get(name.lower())
            name = standard if standard is not None and standard not in taken else name
            if name.casefold() in {other.casefold() for other in taken}:
                name = f"{name} ({row.name.decode('utf-8', 'replace')})"
            taken[name] = Box(row.name, name, row.delimiter or "/")
    return sorted(taken.values(), key=lambda box: (_ORDER.get(box.name, 2), box.name))


_ORDER = {INBOX: 0, SENT: 1, JUNK: 3, TRASH: 4}


def _use_of(row: Listed) -> str | None:
    if row.name.upper() == b"INBOX":
        return INBOX
    return next((ours for use, ours in _USES.items() if use in row.attributes), None)


def _plain_name(row: Listed) -> str:
    """A name with slashes, without the INBOX that some servers put everything under."""
    name = decode_name(row.name)
    delimiter = row.delimiter or "/"
    head, found, tail = name.partition(delimiter)
    if found and head.upper() == "INBOX":
        name = tail
    return name.replace(delimiter, "/") if delimiter != "/" else name
