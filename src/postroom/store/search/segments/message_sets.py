"""Sets of messages by segment: inboxes, mailboxes, labels, hidden messages and tombstones.

They change in the transaction that changes the message. While a segment is merged, each change is
also logged, and applied to the new segment before that becomes live.
"""

from __future__ import annotations

import secrets
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from postroom.store.search.segments.segment import locate_messages
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

DocChange = tuple[int, bool]
"""A doc id, and whether it is in the set afterwards."""

_BATCH = 500
_MAX_STAMP = (1 << 63) - 1
NO_STAMP = 0
REMOVED, HIDDEN, HAS_ATTACHMENT = "removed", "hidden", "file"
_BITS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]

ADD_TO_BUFFER = """
    INSERT INTO search_buffer (message, inbox, stamp) VALUES (:message, :inbox, :stamp)
"""
RESET_IN_BUFFER = """
    UPDATE search_buffer SET merging = NULL, stamp = :stamp
     WHERE message = :message AND inbox = :inbox
"""
IN_BUFFER = """
    SELECT message, merging FROM search_buffer WHERE inbox {inboxes} AND message {messages}
"""
DELETE_FROM_BUFFER = "DELETE FROM search_buffer WHERE message = :message AND inbox = :inbox"
LOG_CHANGE = """
    INSERT INTO search_changes (segment, message, name, is_member)
    VALUES (:segment, :message, :name, :is_member)
"""
READ_SET = "SELECT value FROM search_sets WHERE name = :name AND segment = :segment"
WRITE_SET = """
    INSERT INTO search_sets (name, segment, value) VALUES (:name, :segment, :value)
    ON CONFLICT (name, segment) DO UPDATE SET value = excluded.value
"""


def inbox_set(inbox: int) -> str:
    return f"inbox:{inbox}"


def mailbox_set(folded: str) -> str:
    """The set of all mailboxes with this name, in any inbox."""
    return f"mailbox:{folded}"


def label_set(folded: str) -> str:
    """The set of all labels with this name, in any inbox."""
    return f"label:{folded}"


def truncated_set(stream: int) -> str:
    """The messages with a token in this stream that is too long to be indexed whole."""
    return f"cut:{stream}"


def mutable_sets(*, is_hidden: bool, mailboxes: Iterable[str], labels: Iterable[str]) -> set[str]:
    """The sets of a message that can change, from folded names."""
    names = {mailbox_set(name) for name in mailboxes} | {label_set(name) for name in labels}
    return names | {HIDDEN} if is_hidden else names


def index_message(tx: Transaction, number: int, inbox: int) -> None:
    """Add a new message to the buffer."""
    tx.put(ADD_TO_BUFFER, message=number, inbox=inbox, stamp=_new_stamp())


def _new_stamp() -> int:
    """Unique for each text: a rolled-back message number can be reused."""
    return 1 + secrets.randbelow(_MAX_STAMP)


def reindex_message(tx: Transaction, number: int, inbox: int) -> None:
    """Index a message again after its text has changed."""
    if _add_tombstone(tx, number, inbox):
        tx.put(RESET_IN_BUFFER, message=number, inbox=inbox, stamp=_new_stamp())
    else:
        index_message(tx, number, inbox)


def unindex_message(tx: Transaction, number: int, inbox: int) -> None:
    """Remove a message from the index."""
    if _add_tombstone(tx, number, inbox):
        tx.put(DELETE_FROM_BUFFER, message=number, inbox=inbox)


class SetChange(NamedTuple):
    """The sets of a message before and after a change."""

    number: int
    inbox: int
    before: set[str]
    after: set[str]


def update_message_sets(tx: Transaction, changes: Sequence[SetChange]) -> None:
    """Move messages from the sets they were in to those they are in now."""
    by_message: dict[int, dict[str, bool]] = {}
    for number, _, before, after in changes:
        for name in sorted(before ^ after):
            by_message.setdefault(number, {})[name] = name in after
    _apply_changes(tx, by_message, {change.inbox for change in changes})


def _add_tombstone(tx: Transaction, number: int, inbox: int) -> bool:
    """Mark a message as removed in its segment; return whether it is in the buffer."""
    return number in _apply_changes(tx, {number: {REMOVED: True}}, {inbox})


def _apply_changes(
    tx: Transaction, changes: Mapping[int, Mapping[str, bool]], inboxes: Collection[int]
) -> Collection[int]:
    """Add messages to sets or remove them; return those that are in the buffer."""
    buffer = dict(_in_buffer(tx, sorted(changes), sorted(inboxes)))
    targets = [(n, target) for n, target in buffer.items() if target is not None]
    set_changes: dict[tuple[int, str], list[DocChange]] = {}
    sizes: dict[int, int] = {}
    for number, location in locate_messages(tx, sorted(changes.keys() - buffer.keys())):
        sizes[location.segment] = location.size
        for name, is_in in changes[number].items():
            set_changes.setdefault((location.segment, name), []).append((location.doc_id, is_in))
        if location.merging is not None:
            targets.append((number, location.merging))
    for (segment, name), own in set_changes.items():
        change_set(tx, segment, sizes[segment], name, own)
    _log_changes(tx, changes, targets)
    return buffer.keys()


def _in_buffer(
    tx: Transaction, numbers: Sequence[int], inboxes: Sequence[int]
) -> Iterator[tuple[int, int | None]]:
    """Those of some messages that are in the buffer, and the segment they are merged into."""
    among_inboxes, scope = any_of("inbox", inboxes)
    for first in range(0, len(numbers), _BATCH):
        among, params = any_of("message", numbers[first : first + _BATCH])
        sql = IN_BUFFER.format(inboxes=among_inboxes, messages=among)
        yield from ((row[0], row[1]) for row in tx.all(sql, **scope, **params))


def _log_changes(
    tx: Transaction,
    changes: Mapping[int, Mapping[str, bool]],
    targets: Iterable[tuple[int, int]],
) -> None:
    rows = [
        {"segment": target, "message": number, "name": name, "is_member": int(is_in)}
        for number, target in targets
        for name, is_in in changes[number].items()
    ]
    if rows:
        tx.many(LOG_CHANGE, rows)


def change_set(
    tx: Transaction, segment: int, size: int, name: str, set_changes: Iterable[DocChange]
) -> None:
    """Add doc ids to a set of a segment, or remove them."""
    row = tx.one(READ_SET, name=name, segment=segment)
    value = row[0] if row else b"\0"
    for doc_id, is_in in set_changes:
        value = with_doc(value, doc_id, size, is_in=is_in)
    tx.put(WRITE_SET, name=name, segment=segment, value=value)


def tombstones(tx: Transaction, segment: int) -> set[int]:
    """The doc ids of removed messages."""
    row = tx.one(READ_SET, name=REMOVED, segment=segment)
    return set(decode_set(row[0])) if row else set()


def with_doc(value: bytes, doc_id: int, size: int, *, is_in: bool) -> bytes:
    """A set with one doc id added or removed; see `encode_set`."""
    if value[0]:
        bits = bytearray(value)
        mask = 1 << (doc_id & 7)
        bits[1 + (doc_id >> 3)] &= ~mask
        bits[1 + (doc_id >> 3)] |= mask * is_in
        return bytes(bits)
    doc_ids = array("H")
    doc_ids.frombytes(value[1:])
    found = bisect_left(doc_ids, doc_id)
    if found < len(doc_ids) and doc_ids[found] == doc_id:
        del doc_ids[found]
    if is_in:
        doc_ids.insert(found, doc_id)
    return encode_set(doc_ids, size)


def decode_set(value: bytes) -> list[int]:
    """The doc ids in an encoded set."""
    if not value[0]:
        return array("H", value[1:]).tolist()
    return [8 * at + bit for at, byte in enumerate(value[1:]) for bit in _BITS[byte]]


def encode_set(doc_ids: Sequence[int], size: int) -> bytes:
    """Encode sorted doc ids: a list if it is shorter than a bit for each of *size* messages."""
    if 16 * len(doc_ids) <= size:
        return b"\0" + array("H", doc_ids).tobytes()
    bits = bytearray(-(-size // 8))
    for doc_id in doc_ids:
        bits[doc_id >> 3] |= 1 << (doc_id & 7)
    return b"\1" + bytes(bits)
