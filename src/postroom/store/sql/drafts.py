"""Drafts: kept, changed, sent once; which message one became is remembered for ever."""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.errors import NotFound, no_such
from postroom.model.draft import StoredDraft
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.values import dumps, from_text, moment, seconds, visible_numbers
from postroom.store.transaction import Row, Transaction

WORDS_KEPT = timedelta(days=7)
"""How long after it was sent a draft could be wanted back."""

_COLUMNS = "d.number, d.id, i.id, d.arguments, d.send_at, d.created_at, d.updated_at, d.message_id"
_TABLES = "drafts d JOIN inboxes i ON i.number = d.inbox"
SAVE = """
    INSERT INTO drafts (id, inbox, arguments, send_at, created_at, updated_at)
    VALUES (:id, :inbox, :arguments, :send_at, :created_at, :updated_at)
    ON CONFLICT (id) DO UPDATE SET inbox = excluded.inbox, arguments = excluded.arguments,
        send_at = excluded.send_at, updated_at = excluded.updated_at
     WHERE drafts.sent_at IS NULL
"""
FORGET_WORDS = """
    UPDATE drafts SET arguments = '{}'
     WHERE sent_at <= :before AND arguments <> '{}' AND (send_at IS NULL OR send_at <= :before)
"""


def _draft(row: Row) -> StoredDraft:
    number, draft_id, inbox_id, arguments, send_at, created_at, updated_at, message_id = row
    when = None if send_at is None else moment(send_at)
    times = (moment(created_at), moment(updated_at))
    return StoredDraft(draft_id, inbox_id, from_text(arguments), when, *times, message_id, number)


def save_draft(tx: Transaction, draft: StoredDraft) -> None:
    """Keep a draft, new or changed. Raises NotFound when its inbox is gone, or it was just sent."""
    inbox = tx.one("SELECT number FROM inboxes WHERE id = :id", id=draft.inbox_id)
    if inbox is None:
        raise NotFound(no_such("inbox", draft.inbox_id))
    tx.run(FORGET_WORDS, before=seconds(draft.updated_at - WORDS_KEPT))
    saved = tx.run(
        SAVE,
        id=draft.id,
        inbox=inbox[0],
        arguments=dumps(draft.arguments),
        send_at=None if draft.send_at is None else seconds(draft.send_at),
        created_at=seconds(draft.created_at),
        updated_at=seconds(draft.updated_at),
    )
    if not saved:
        raise NotFound(no_such("draft", draft.id))


def get_draft(tx: Transaction, draft_id: str, visible: Visible) -> StoredDraft | None:
    """A draft by its id, sent or not."""
    row = tx.one(f"SELECT {_COLUMNS} FROM {_TABLES} WHERE d.id = :id", id=draft_id)
    if row is None or (visible is not None and row[2] not in visible):
        return None
    return _draft(row)


def list_drafts(
    tx: Transaction, visible: Visible, inbox_id: str | None, page: Slice
) -> Found[StoredDraft]:
    """Drafts that are not sent, newest first."""
    where = Conditions()
    where.add("d.sent_at IS NULL")
    inboxes = visible_numbers(tx, visible)
    if inboxes is not None:
        where.among("d.inbox", "inbox", inboxes)
    if inbox_id is not None:
        where.add("i.id = :inbox_id", inbox_id=inbox_id)
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM {_TABLES} WHERE {where.sql} ORDER BY d.number DESC",
        **where.params,
    )
    start = page.offset
    if page.after:
        start = sum(1 for row in rows if row[0] >= int(page.after[0]))
    shown = rows[start : start + page.limit]
    has_more = bool(shown) and start + len(shown) < len(rows)
    place = (shown[-1][0],) if has_more else None
    return Found(tuple(_draft(row) for row in shown), len(rows), start, place)


def sent_as(tx: Transaction, draft_id: str) -> str | None:
    """The message that a draft has become. Raises NotFound when there is no draft."""
    row = tx.one("SELECT message_id FROM drafts WHERE id = :id", id=draft_id)
    if row is None:
        raise NotFound(no_such("draft", draft_id))
    return None if row[0] is None else str(row[0])


def mark_sent(tx: Transaction, draft_id: str, message_id: str, now: datetime) -> None:
    """Take a draft out of the list and note the message that it has become."""
    tx.run(
        "UPDATE drafts SET sent_at = :now, message_id = :message_id WHERE id = :id",
        id=draft_id,
        message_id=message_id,
        now=seconds(now),
    )


def take_back(tx: Transaction, message_id: str) -> None:
    """Nobody has got this message, nor will: what it was written as is a draft again."""
    tx.run(
        """UPDATE drafts SET sent_at = NULL, message_id = NULL
            WHERE message_id = :message_id AND arguments <> '{}'""",
        message_id=message_id,
    )


def remove_draft(tx: Transaction, draft_id: str, visible: Visible) -> bool:
    """Forget a draft that was not sent; False if there is none."""
    draft = get_draft(tx, draft_id, visible)
    if draft is None or draft.message_id is not None:
        return False
    return tx.run("DELETE FROM drafts WHERE id = :id", id=draft_id) > 0
