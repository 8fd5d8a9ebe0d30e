"""Sets of messages in each segment: inboxes, mailboxes, labels, the hidden and the removed.

They change with the message, in the same transaction. While a segment is merged into another,
each change is noted as well, and done again to the other before that one is searched.
"""

from __future__ import annotations

import secrets
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from postroom.store.search.segments import spots_of
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

Mark = tuple[int, bool]
"""A place, and whether it is in a set."""

_AT_ONCE = 500
_MOST_STAMPS = (1 << 63) - 1
NO_STAMP = 0
REMOVED, HIDDEN, WITH_FILE = "removed", "hidden", "file"
_BITS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]

ADD_TO_TAIL = "INSERT INTO search_tail (message, inbox, stamp) VALUES (:message, :inbox, :stamp)"
KEEP_IN_TAIL = """
    UPDATE search_tail SET merging = NULL, stamp = :stamp
     WHERE message = :message AND inbox = :inbox
"""
IN_TAIL = "SELECT message, merging FROM search_tail WHERE inbox {inboxes} AND message {messages}"
DROP_FROM_TAIL = "DELETE FROM search_tail WHERE message = :message AND inbox = :inbox"
NOTE = """
    INSERT INTO search_changes (segment, message, name, is_in)
    VALUES (:segment, :message, :name, :is_in)
"""
READ_SET = "SELECT value FROM search_sets WHERE name = :name AND segment = :segment"
WRITE_SET = """
    INSERT INTO search_sets (name, segment, value) VALUES (:name, :segment, :value)
    ON CONFLICT (name, segment) DO UPDATE SET value = excluded.value
"""


def inbox_set(inbox: int) -> str:
    """The messages of an inbox."""
    return f"inbox:{inbox}"


def mailbox_set(folded: str) -> str:
    """The messages in mailboxes of this name, whosever they are."""
    return f"mailbox:{folded}"


def label_set(folded: str) -> str:
    """The messages with labels of this name, whosever they are."""
    return f"label:{folded}"


def cut_set(stream: int) -> str:
    """The messages with a token in this text that is too long to be in the index whole."""
    return f"cut:{stream}"


def moving_sets(*, is_hidden: bool, mailboxes: Iterable[str], labels: Iterable[str]) -> set[str]:
    """The sets that a message with these names, folded, is in; it may leave them."""
    names = {mailbox_set(name) for name in mailboxes} | {label_set(name) for name in labels}
    return names | {HIDDEN} if is_hidden else names


def index_message(tx: Transaction, number: int, inbox: int) -> None:
    """Let searches find a message that was written just now."""
    tx.put(ADD_TO_TAIL, message=number, inbox=inbox, stamp=_new_stamp())


def _new_stamp() -> int:
    """What no text had before; a number that was taken back may be given to another message."""
    return 1 + secrets.randbelow(_MOST_STAMPS)


def reindex_message(tx: Transaction, number: int, inbox: int) -> None:
    """Let searches find a message by its new text."""
    if _leave(tx, number, inbox):
        tx.put(KEEP_IN_TAIL, message=number, inbox=inbox, stamp=_new_stamp())
    else:
        index_message(tx, number, inbox)


def remove_message(tx: Transaction, number: int, inbox: int) -> None:
    """Let no search find a message any more."""
    if _leave(tx, number, inbox):
        tx.put(DROP_FROM_TAIL, message=number, inbox=inbox)


class Move(NamedTuple):
    """The sets that a message was in, and those that it is in now."""

    number: int
    inbox: int
    before: set[str]
    after: set[str]


def move_messages(tx: Transaction, moves: Sequence[Move]) -> None:
    """Move messages out of some sets and into others."""
    changes: dict[int, dict[str, bool]] = {}
    for number, _, before, after in moves:
        own = {name: name in after for name in sorted(before ^ after)}
        changes.setdefault(number, {}).update(own)
    _put_all(tx, {n: own for n, own in changes.items() if own}, {move.inbox for move in moves})


def _leave(tx: Transaction, number: int, inbox: int) -> bool:
    """Take a message out of its segment; say whether it is in the tail."""
    return number in _put_all(tx, {number: {REMOVED: True}}, {inbox})


def _put_all(
    tx: Transaction, changes: Mapping[int, Mapping[str, bool]], inboxes: Collection[int]
) -> Collection[int]:
    """Put messages into sets, or take them out; return those that are in the tail."""
    tail = dict(_in_tail(tx, sorted(changes), sorted(inboxes)))
    notes = [(n, target) for n, target in tail.items() if target is not None]
    marks: dict[tuple[int, str], list[Mark]] = {}
    sizes: dict[int, int] = {}
    for number, spot in spots_of(tx, sorted(changes.keys() - tail.keys())):
        sizes[spot.segment] = spot.size
        for name, is_in in changes[number].items():
            marks.setdefault((spot.segment, name), []).append((spot.place, is_in))
        if spot.merging is not None:
            notes.append((number, spot.merging))
    for (segment, name), own in marks.items():
        put_marks(tx, segment, sizes[segment], name, own)
    _note(tx, changes, notes)
    return tail.keys()


def _in_tail(
    tx: Transaction, numbers: Sequence[int], inboxes: Sequence[int]
) -> Iterator[tuple[int, int | None]]:
    """Those of some messages that are in the tail, and what they are merged into."""
    of_them, owners = any_of("inbox", inboxes)
    for first in range(0, len(numbers), _AT_ONCE):
        among, params = any_of("message", numbers[first : first + _AT_ONCE])
        sql = IN_TAIL.format(inboxes=of_them, messages=among)
        yield from ((row[0], row[1]) for row in tx.all(sql, **owners, **params))


def _note(
    tx: Transaction,
    changes: Mapping[int, Mapping[str, bool]],
    notes: Iterable[tuple[int, int]],
) -> None:
    """Write down what is to be done to segments that are being made."""
    rows = [
        {"segment": target, "message": number, "name": name, "is_in": int(is_in)}
        for number, target in notes
        for name, is_in in changes[number].items()
    ]
    if rows:
        tx.many(NOTE, rows)


def put_marks(tx: Transaction, segment: int, size: int, name: str, marks: Iterable[Mark]) -> None:
    """Put the messages at some places of a segment into a set, or take them out."""
    row = tx.one(READ_SET, name=name, segment=segment)
    value = row[0] if row else b"\0"
    for place, is_in in marks:
        value = with_place(value, place, size, is_in=is_in)
    tx.put(WRITE_SET, name=name, segment=segment, value=value)


def with_place(value: bytes, place: int, size: int, *, is_in: bool) -> bytes:
    """A set with one place more or less; see `rows.encode_places` for how it is written."""
    if value[0]:
        bits = bytearray(value)
        mask = 1 << (place & 7)
        bits[1 + (place >> 3)] &= ~mask
        bits[1 + (place >> 3)] |= mask * is_in
        return bytes(bits)
    places = array("H")
    places.frombytes(value[1:])
    found = bisect_left(places, place)
    if found < len(places) and places[found] == place:
        del places[found]
    if is_in:
        places.insert(found, place)
    return write_places(places, size)


def places_in(value: bytes) -> list[int]:
    """The places in a written set."""
    if not value[0]:
        return array("H", value[1:]).tolist()
    return [8 * at + bit for at, byte in enumerate(value[1:]) for bit in _BITS[byte]]


def write_places(places: Sequence[int], size: int) -> bytes:
    """A set of places, in order, of a segment with so many messages."""
    if 16 * len(places) <= size:
        return b"\0" + array("H", places).tobytes()
    bits = bytearray(-(-size // 8))
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return b"\1" + bytes(bits)
