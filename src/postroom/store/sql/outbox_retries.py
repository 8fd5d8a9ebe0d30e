"""A sent message tried again, or cancelled before it is out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from postroom.errors import Conflict, NotFound, no_such
from postroom.model.inbox import Visible
from postroom.model.message import Recipient
from postroom.model.sending import AGAIN, OPEN
from postroom.store.sql.drafts import give_again, take_back
from postroom.store.sql.outbox import IT, copy_to_sent, put_in_outbox, wait_again
from postroom.store.sql.outcomes import set_recipients
from postroom.store.sql.pushes import keep_draft, take_copy_back
from postroom.store.sql.values import dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

FIND = """
    SELECT m.number, i.id, m.details, o.state, o.is_scheduled, m.inbox, o.draft_id,
           o.draft_revision, o.unknown, o.queued_at FROM messages m
      JOIN inboxes i ON i.number = +m.inbox
      LEFT JOIN outbox o ON +o.inbox = +m.inbox AND o.message = m.number
     WHERE m.id = :id AND m.is_outbound = 1
"""


def retry_mail(tx: Transaction, message_id: str, visible: Visible, now: datetime) -> None:
    """Queue again whoever did not get the message, or hurry those who wait.

    Where each of them is reached is found out anew, as for a mail whose time has come.

    Raises:
        NotFound: there is no such sent message.
        Conflict: there is nobody left to send it to, it is being handed over right now, its time
            has not come, or it was cancelled and its draft changed or sent since.
    """
    row = _found(tx, message_id, visible)
    again = [r for r in _recipients(row) if r.status in AGAIN]
    if not again:
        raise Conflict(f"everyone has got {message_id} already")
    if row[3] in ("claimed", "handing_over"):
        raise Conflict(f"{message_id} is being handed over right now")
    if any(r.status == "scheduled" for r in again) and row[9] > seconds(now):
        raise Conflict(
            f"{message_id} is dated for {moment(row[9]):%Y-%m-%d %H:%M} UTC; cancel_message makes "
            "it a draft again, which can be sent now without its send_at"
        )
    inbox, number = row[5], row[0]
    if row[6] is not None:
        give_again(tx, row[6], row[7], message_id, now)
    changes = {r.address: Recipient(r.address, "queued") for r in again}
    set_recipients(tx, inbox, number, changes, now)
    statuses = {r.status for r in _recipients(row)}
    keep_draft(tx, inbox, message_id)
    take_copy_back(tx, inbox, number, message_id, statuses=statuses)
    tx.run(f"DELETE FROM outbox WHERE {IT}", inbox=inbox, message=number)
    everyone = tuple(changes.get(r.address, r) for r in _recipients(row))
    put_in_outbox(tx, inbox, number, everyone, seconds(now), is_scheduled=True)
    unknown = _were_unknown(row) | {r.address: r.detail for r in again if r.status == "unknown"}
    if unknown:
        _note(tx, row, unknown=dumps(unknown))


def cancel_mail(tx: Transaction, message_id: str, visible: Visible, now: datetime) -> None:
    """Keep a message from those who have not got it yet.

    Who may have got it before it was tried again is unknown as before.

    Raises:
        NotFound: there is no such sent message.
        Conflict: it is too late.
    """
    row = _found(tx, message_id, visible)
    waiting = [r for r in _recipients(row) if r.status in OPEN]
    if not waiting:
        raise Conflict(f"nobody waits for {message_id} any more; there is nothing to cancel")
    if row[3] in ("claimed", "handing_over"):
        raise Conflict(f"{message_id} is being handed over right now")
    unknown = _were_unknown(row)
    cancelled = {r.address: _cancelled(r.address, unknown) for r in waiting}
    set_recipients(tx, row[5], row[0], cancelled, now)
    copy_to_sent(tx, row[5], row[0], now)
    wait_again(tx, row[5], row[0], seconds(now))
    if unknown or len(cancelled) < len(_recipients(row)):
        return
    draft = take_back(tx, message_id)
    if draft is not None:
        _note(tx, row, draft_id=draft[0], draft_revision=draft[1])


def _cancelled(address: str, unknown: Mapping[str, str | None]) -> Recipient:
    if address in unknown:
        return Recipient(address, "unknown", unknown[address])
    return Recipient(address, "failed", "cancelled before it was sent")


def _were_unknown(row: Row) -> dict[str, str | None]:
    """Who was unknown before a message was tried again, and what was said of it."""
    return dict(from_text(row[8] or "{}"))


def _note(tx: Transaction, row: Row, **values: object) -> None:
    changes = ", ".join(f"{name} = :{name}" for name in values)
    tx.run(f"UPDATE outbox SET {changes} WHERE {IT}", inbox=row[5], message=row[0], **values)


def _found(tx: Transaction, message_id: str, visible: Visible) -> Row:
    row = tx.one(FIND, id=message_id)
    if row is None or (visible is not None and row[1] not in visible):
        raise NotFound(no_such("sent message", message_id))
    return row


def _recipients(row: Row) -> list[Recipient]:
    return [Recipient(**r) for r in from_text(row[2])["recipients"] or ()]
