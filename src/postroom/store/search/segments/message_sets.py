"""Sets of messages by segment: inboxes, mailboxes, labels, flags, hidden messages, tombstones."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from postroom.store.transaction import Transaction

DocChange = tuple[int, bool]
"""A doc id, and whether it is in the set afterwards."""

NO_STAMP = 0
REMOVED, HIDDEN, HAS_ATTACHMENT = "removed", "hidden", "file"
HAS_FLAGS = "flags"
"""An empty set beside a segment of an earlier format: its sets of flags exist."""
_TRUNCATED = "cut:"
_BITS = [tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256)]

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


def flag_set(flag: str) -> str:
    """The set of all messages with this flag."""
    return f"flag:{flag}"


def truncated_set(stream: int) -> str:
    """The messages with a token in this stream that is too long to be indexed whole."""
    return f"{_TRUNCATED}{stream}"


def is_of_rows(name: str) -> bool:
    """Whether a set follows from the rows of its segment, not from the properties of messages."""
    return name.startswith(_TRUNCATED)


def mutable_sets(
    *, is_hidden: bool, mailboxes: Iterable[str], labels: Iterable[str], flags: Iterable[str]
) -> set[str]:
    """The sets of a message that can change; names of mailboxes and labels are folded."""
    names = {mailbox_set(name) for name in mailboxes} | {label_set(name) for name in labels}
    names |= {flag_set(flag) for flag in flags}
    return names | {HIDDEN} if is_hidden else names


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


def decode_set(value: bytes | None) -> list[int]:
    """The doc ids in an encoded set; a missing set is empty."""
    if not value:
        return []
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
