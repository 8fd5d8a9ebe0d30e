"""Sets of messages in each segment: inboxes, mailboxes, labels, the hidden and the removed.

They change with the message, in the same transaction. While a segment is merged into another,
each change is noted as well, and done again to the other before that one is searched.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from postroom.store.search.segments import Spot, spots_of
from postroom.store.transaction import Transaction

REMOVED, HIDDEN, WITH_FILE = "removed", "hidden", "file"
_BITS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]

ADD_TO_TAIL = "INSERT INTO search_tail (message, inbox) VALUES (:message, :inbox)"
KEEP_IN_TAIL = "UPDATE search_tail SET merging = NULL WHERE message = :message AND inbox = :inbox"
IN_TAIL = "SELECT merging FROM search_tail WHERE message = :message AND inbox = :inbox"
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
    tx.put(ADD_TO_TAIL, message=number, inbox=inbox)


def reindex_message(tx: Transaction, number: int, inbox: int) -> None:
    """Let searches find a message by its new text."""
    if _leave(tx, number, inbox):
        tx.put(KEEP_IN_TAIL, message=number, inbox=inbox)
    else:
        index_message(tx, number, inbox)


def remove_message(tx: Transaction, number: int, inbox: int) -> None:
    """Let no search find a message any more."""
    if _leave(tx, number, inbox):
        tx.put(DROP_FROM_TAIL, message=number, inbox=inbox)


def change_message(
    tx: Transaction, number: int, inbox: int, before: set[str], after: set[str]
) -> None:
    """Move a message out of some sets and into others."""
    changes = {name: name in after for name in sorted(before ^ after)}
    if changes:
        _put_all(tx, number, inbox, changes)


def _leave(tx: Transaction, number: int, inbox: int) -> bool:
    """Take a message out of its segment; say whether it is in the tail."""
    return _put_all(tx, number, inbox, {REMOVED: True})


def _put_all(tx: Transaction, number: int, inbox: int, changes: Mapping[str, bool]) -> bool:
    row = tx.one(IN_TAIL, message=number, inbox=inbox)
    if row is None:
        for spot in spots_of(tx, number):
            for name, is_in in changes.items():
                put(tx, spot, number, name, is_in=is_in)
    elif row[0] is not None:
        for name, is_in in changes.items():
            tx.put(NOTE, segment=row[0], message=number, name=name, is_in=int(is_in))
    return row is not None


def put(tx: Transaction, spot: Spot, message: int, name: str, *, is_in: bool) -> None:
    """Put the message at a place into a set, or take it out."""
    row = tx.one(READ_SET, name=name, segment=spot.segment)
    value = with_place(row[0] if row else b"\0", spot.place, spot.size, is_in=is_in)
    tx.put(WRITE_SET, name=name, segment=spot.segment, value=value)
    if spot.merging is not None:
        tx.put(NOTE, segment=spot.merging, message=message, name=name, is_in=int(is_in))


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
