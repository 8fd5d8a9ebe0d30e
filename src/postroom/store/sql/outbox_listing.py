"""What is in the outbox, as its owner sees it."""

from __future__ import annotations

from postroom.model.message import Recipient
from postroom.model.outbox import OutboxEntry, OutboxQuery
from postroom.model.page import Found
from postroom.model.sending import NOT_OUT, overall_status
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.outbox import is_paused
from postroom.store.sql.values import from_text, moment, visible_numbers
from postroom.store.transaction import Row, Transaction

_TABLES = """outbox o JOIN messages m ON +m.inbox = +o.inbox AND m.number = o.message
    JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
    JOIN inboxes i ON i.number = +m.inbox"""
_COLUMNS = """o.message, m.id, t.id, i.id, m.subject, m.details, o.attempts, o.queued_at, o.next_at,
    o.state"""


def find_outbox(tx: Transaction, query: OutboxQuery) -> Found[OutboxEntry]:
    """What is not out yet or did not get out, newest first."""
    where = _conditions(tx, query)
    counted = tx.one(f"SELECT count(*) FROM {_TABLES} WHERE {where.sql}", **where.params)
    total: int = counted[0] if counted else 0
    offset = query.page.offset
    before = query.page.after[0] if query.page.after else 2**62
    if query.page.after:
        passed = tx.one(
            f"SELECT count(*) FROM {_TABLES} WHERE {where.sql} AND o.message >= :before",
            **where.params,
            before=before,
        )
        offset = passed[0] if passed else 0
    rows = tx.all(
        f"""SELECT {_COLUMNS} FROM {_TABLES} WHERE {where.sql} AND o.message < :before
             ORDER BY o.message DESC LIMIT :limit OFFSET :skipped""",
        **where.params,
        before=before,
        limit=query.page.limit,
        skipped=query.page.offset,
    )
    has_more = rows and offset + len(rows) < total
    paused = is_paused(tx)
    entries = tuple(_entry(row, is_paused=paused) for row in rows)
    return Found(entries, total, offset, (rows[-1][0],) if has_more else None)


def _conditions(tx: Transaction, query: OutboxQuery) -> Conditions:
    where = Conditions()
    inboxes = visible_numbers(tx, query.visible)
    if inboxes is not None:
        where.among("o.inbox", "inbox", inboxes)
    where.among("o.status", "status", [query.status] if query.status else NOT_OUT)
    return where


def _entry(row: Row, *, is_paused: bool) -> OutboxEntry:
    recipients = tuple(Recipient(**r) for r in from_text(row[5])["recipients"])
    return OutboxEntry(
        message_id=row[1],
        thread_id=row[2],
        inbox_id=row[3],
        subject=row[4],
        status=overall_status(recipients),
        recipients=recipients,
        attempts=row[6],
        queued_at=moment(row[7]),
        next_attempt_at=moment(row[8]) if row[9] == "waiting" else None,
        is_paused=is_paused and row[9] == "waiting",
    )
