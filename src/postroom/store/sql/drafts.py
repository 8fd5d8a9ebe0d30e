"""Drafts: kept, changed, and remembered for a while after they were sent."""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.errors import NotFound, no_such
from postroom.model.draft import StoredDraft
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.values import dumps, from_text, moment, seconds, visible_numbers
from postroom.store.transaction import Row, Transaction

SENT_KEPT = timedelta(days=7)
"""As long as an answer to a send is kept: a repeated send of the draft gets the same."""

_COLUMNS = "d.number, d.id, i.id, d.arguments, d.send_at, d.created_at, d.updated_at"
_TABLES = "drafts d JOIN inboxes i ON i.number = d.inbox"
SAVE = """
    INSERT INTO drafts (id, inbox, arguments, send_at, created_at, updated_at)
    VALUES (:id, :inbox, :arguments, :send_at, :created_at, :updated_at)
    ON CONFLICT (id) DO UPDATE SET inbox = excluded.inbox, arguments = excluded.arguments,
        send_at = excluded.send_at, updated_at = excluded.updated_at
"""


def _draft(row: Row) -> StoredDraft:
    number, draft_id, inbox_id, arguments, send_at, created_at, updated_at = row
    when = None if send_at is None else moment(send_at)
    times = (moment(created_at), moment(updated_at))
    return StoredDraft(draft_id, inbox_id, from_text(arguments), when, *times, number)


def save_draft(tx: Transaction, draft: StoredDraft) -> None:
    """Keep a draft, new or changed. Raises NotFound when its inbox is gone."""
    inbox = tx.one("SELECT number FROM inboxes WHERE id = :id", id=draft.inbox_id)
    if inbox is None:
        raise NotFound(no_such("inbox", draft.inbox_id))
    forgotten = seconds(draft.updated_at - SENT_KEPT)
    tx.run("DELETE FROM drafts WHERE sent_at <= :before", before=forgotten)
    tx.run(
        SAVE,
        id=draft.id,
        inbox=inbox[0],
        arguments=dumps(draft.arguments),
        send_at=None if draft.send_at is None else seconds(draft.send_at),
        created_at=seconds(draft.created_at),
        updated_at=seconds(draft.updated_at),
    )


def get_draft(
    tx: Transaction, draft_id: str, visible: Visible, *, even_sent: bool
) -> StoredDraft | None:
    """A draft by its id."""
    unsent = "" if even_sent else " AND d.sent_at IS NULL"
    row = tx.one(f"SELECT {_COLUMNS} FROM {_TABLES} WHERE d.id = :id{unsent}", id=draft_id)
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


def mark_draft_sent(tx: Transaction, draft_id: str, now: datetime) -> None:
    """Take a draft out of the list; it is forgotten when nobody can repeat the send any more."""
    tx.run(
        "UPDATE drafts SET sent_at = coalesce(sent_at, :now) WHERE id = :id",
        id=draft_id,
        now=seconds(now),
    )


def remove_draft(tx: Transaction, draft_id: str, visible: Visible) -> bool:
    """Forget a draft; False if there is none."""
    draft = get_draft(tx, draft_id, visible, even_sent=False)
    return draft is not None and tx.run("DELETE FROM drafts WHERE id = :id", id=draft_id) > 0
