"""What is in the outbox, as its owner sees it."""

from __future__ import annotations

from functools import partial

from postroom.model.message import Recipient
from postroom.model.outbox import OutboxEntry, OutboxQuery
from postroom.model.page import Found
from postroom.model.sending import NOT_OUT, overall_status
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.outbox import is_paused
from postroom.store.sql.pages import Listing
from postroom.store.sql.values import from_text, moment, visible_numbers
from postroom.store.transaction import Row, Transaction

_TABLES = """outbox o JOIN messages m ON +m.inbox = +o.inbox AND m.number = o.message
    JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
    JOIN inboxes i ON i.number = +m.inbox"""
_COLUMNS = """o.message, m.id, t.id, i.id, m.subject, m.details, o.attempts, o.queued_at, o.next_at,
    o.state"""
_LISTING = Listing(_COLUMNS, _TABLES, "o.message", is_newest_first=True)


def find_outbox(tx: Transaction, query: OutboxQuery) -> Found[OutboxEntry]:
    """What is not out yet or did not get out, newest first."""
    read = partial(_entry, is_paused=is_paused(tx))
    return _LISTING.page(tx, _conditions(tx, query), query.page, read)


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
