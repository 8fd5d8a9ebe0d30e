"""What the index reads of messages, and which messages a segment has."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.store.search.segments import message_sets
from postroom.store.search.segments.segment import COLUMNS, SUBJECT, messages_by_doc_id
from postroom.store.sql.statements import any_of, caseless, flag_names, from_text
from postroom.store.transaction import Row, Transaction

MESSAGES = f"""
    SELECT m.number, m.date, b.{", b.".join(COLUMNS[:SUBJECT])},
           m.inbox, m.is_hidden, m.has_attachment, m.mailboxes, m.labels, m.flags
      FROM messages m JOIN search_texts b ON +b.inbox = +m.inbox AND b.message = m.number
     WHERE m.number {{among}} ORDER BY m.number
"""


def live_messages(tx: Transaction, sources: Sequence[int]) -> list[int]:
    """The messages of some segments without tombstones."""
    found: list[int] = []
    for source in sources:
        numbers, tombstones = messages_by_doc_id(tx, source), message_sets.tombstones(tx, source)
        found += [number for doc_id, number in enumerate(numbers) if doc_id not in tombstones]
    return sorted(found)


def read_messages(tx: Transaction, numbers: Sequence[int]) -> list[Row]:
    """Number, date, texts and properties of some messages."""
    among, params = any_of("number", numbers)
    return tx.all(MESSAGES.format(among=among), **params)


def sets_of(message: Row) -> set[str]:
    """The sets that a message is in, as `read_messages` returns it."""
    inbox, is_hidden, has_attachment, mailboxes, labels, flags = message[-6:]
    names = message_sets.mutable_sets(
        is_hidden=bool(is_hidden),
        mailboxes=map(caseless, from_text(mailboxes)),
        labels=map(caseless, from_text(labels)),
        flags=flag_names(flags),
    )
    names.add(message_sets.inbox_set(inbox))
    if has_attachment:
        names.add(message_sets.HAS_ATTACHMENT)
    return names
