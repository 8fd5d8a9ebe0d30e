"""Parsing messages again: their content changes, their ids and mailboxes do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postroom.model.mail.storage import NewMessage, OutdatedMessage
from postroom.store.search.index import reindex_message
from postroom.store.sql.messages.message_insert import (
    NewRows,
    add_attachments,
    add_texts,
    details_of,
    parsed_columns,
)
from postroom.store.sql.messages.message_search import direction
from postroom.store.sql.messages.thread_choice import (
    ARRIVAL_FINDINGS,
    InboxThreads,
    choose_thread,
)
from postroom.store.sql.messages.thread_merging import recount
from postroom.store.sql.statements import from_text, moment, scalar, update
from postroom.store.transaction import Row, Transaction

OUTDATED = """
    SELECT m.number, m.id, i.id, t.id, m.is_outbound, m.received_at, m.addresses, m.raw
      FROM messages m JOIN inboxes i ON i.number = +m.inbox
      JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.number > :after AND m.parser_version < :version
     ORDER BY m.number LIMIT :limit
"""
COUNT_OUTDATED = "SELECT count(*) FROM messages WHERE parser_version < :version"
FIND = """
    SELECT m.number, m.inbox, m.thread, m.details, t.is_pinned FROM messages m
      JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread WHERE m.id = :id
"""


def count_outdated(tx: Transaction, version: int) -> int:
    """The number of messages of an older parser version."""
    return int(scalar(tx, COUNT_OUTDATED, version=version))


def outdated(tx: Transaction, version: int, after: int, limit: int) -> list[OutdatedMessage]:
    """The next messages of an older parser version, in order of arrival."""
    rows = tx.all(OUTDATED, version=version, after=after, limit=limit)
    return [
        OutdatedMessage(
            number=row[0],
            id=row[1],
            inbox_id=row[2],
            thread_id=row[3],
            direction=direction(row[4]),
            received_at=moment(row[5]),
            bcc=tuple(line[2] for line in from_text(row[6]) if line[0] == "bcc"),
            raw=row[7],
        )
        for row in rows
    ]


def reparse_messages(tx: Transaction, messages: Sequence[NewMessage]) -> None:
    """Store the result of the current parser; messages that were removed meanwhile are skipped."""
    for message in messages:
        row = tx.one(FIND, id=message.id)
        if row is not None:
            _reread(tx, message, row)


def _reread(tx: Transaction, message: NewMessage, row: Row) -> None:
    number, inbox, old_thread = row[:3]
    threads = InboxThreads(tx, inbox)
    threads.add(message, old_thread, is_hidden=True)  # counted below
    threads.write()
    # a thread that was split by a caller stays as it is
    thread = old_thread if row[4] else choose_thread(tx, message, threads)[0]
    columns = parsed_columns(message, thread, _details(message, from_text(row[3])))
    update(tx, "messages", {"inbox": inbox, "number": number}, **columns)
    for table in ("bodies", "search_texts"):
        tx.run(f"DELETE FROM {table} WHERE inbox = :inbox AND message = :n", inbox=inbox, n=number)
    rows = NewRows(tx)
    add_texts(rows, message, inbox, number)
    _replace_attachments(tx, rows, message, inbox, number)
    rows.write()
    reindex_message(tx, number, inbox)
    for touched in {old_thread, thread}:
        recount(tx, inbox, touched)


def _details(message: NewMessage, old: dict[str, Any]) -> dict[str, object]:
    """The new details; what was found out on arrival or sending is kept."""
    security = {k: v for k, v in (old["security"] or {}).items() if k in ARRIVAL_FINDINGS}
    return {
        **details_of(message, message.defects),
        "recipients": old["recipients"],
        "security": {**message.security, **security},
        **{name: old[name] for name in ("auto_answered", "send_at", "hold") if name in old},
    }


def _replace_attachments(
    tx: Transaction, rows: NewRows, message: NewMessage, inbox: int, number: int
) -> None:
    """Replace the attachments of a message; those with the same content keep their ids."""
    found = tx.all(
        """SELECT sha256, id FROM attachments WHERE inbox = :inbox AND message = :message
            ORDER BY position DESC""",
        inbox=inbox,
        message=number,
    )
    ids: dict[str, list[str]] = {}
    for sha256, attachment_id in found:
        ids.setdefault(sha256, []).append(attachment_id)
    tx.run("DELETE FROM attachments WHERE inbox = :inbox AND message = :n", inbox=inbox, n=number)
    attachment_ids = [
        ids[a.sha256].pop() if ids.get(a.sha256) else a.id for a in message.attachments
    ]
    add_attachments(rows, message, inbox, number, attachment_ids)
