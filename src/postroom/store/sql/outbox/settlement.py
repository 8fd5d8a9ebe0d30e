"""Settling a claimed mail: sent, failed, retried later or cancelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from postroom.errors import Conflict, NotFound, no_such
from postroom.model.inbox import Visible
from postroom.model.message import Recipient
from postroom.model.sending import AGAIN, OPEN, OutboxJob
from postroom.model.storage import NewMessage
from postroom.store.sql.accounts.pushes import cancel_draft_removal, remove_sent_copy
from postroom.store.sql.messages.message_insert import add_message
from postroom.store.sql.outbox.drafts import mark_sent_again, restore_draft
from postroom.store.sql.outbox.queue import (
    ROW_KEY,
    copy_to_sent,
    insert_outbox_entry,
    is_claimed,
    requeue,
    row_of,
    set_outcomes,
    set_recipients,
)
from postroom.store.sql.values import dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

COUNT_ATTEMPT = f"""
    UPDATE outbox SET attempts = attempts + 1,
           first_attempt_at = CASE attempts WHEN 0 THEN :now ELSE coalesce(first_attempt_at,
            queued_at) END
     WHERE {ROW_KEY}
"""


def settle_mail(
    tx: Transaction,
    job: OutboxJob,
    recipients: Mapping[str, Recipient],
    *,
    now: datetime,
    next_at: datetime,
) -> None:
    """Record the outcome for each recipient; queued recipients are retried later.

    If another worker took over the expired claim, it set these recipients to `unknown`; final
    outcomes replace that.
    """
    row = tx.one(f"SELECT holder FROM outbox WHERE {ROW_KEY}", **row_of(job))
    if row is None:
        return
    if row[0] != job.holder:
        recipients = {a: r for a, r in recipients.items() if r.status in ("sent", "failed")}
    set_outcomes(tx, job.inbox, job.number, recipients, now)
    copy_to_sent(tx, job.inbox, job.number, next_at)
    tx.run(COUNT_ATTEMPT, now=seconds(now), **row_of(job))
    if row[0] == job.holder:
        requeue(tx, job.inbox, job.number, seconds(next_at))


def deliver_scheduled(
    tx: Transaction,
    job: OutboxJob,
    copies: Sequence[NewMessage],
    recipients: Mapping[str, Recipient],
    now: datetime,
) -> bool:
    """Deliver the local copies of a scheduled mail that is due, and queue the rest for the relay.

    Returns False if the claim was lost.
    """
    if not is_claimed(tx, job):
        return False
    for copy in copies:
        add_message(tx, copy)
    row = tx.one(f"SELECT unknown FROM outbox WHERE {ROW_KEY}", **row_of(job))
    unknown = from_text((row[0] if row else None) or "{}")
    routed = {address: _keep_unknown(r, unknown) for address, r in recipients.items()}
    set_recipients(tx, job.inbox, job.number, routed, now)
    copy_to_sent(tx, job.inbox, job.number, now)
    tx.run(f"UPDATE outbox SET is_scheduled = 0 WHERE {ROW_KEY}", **row_of(job))
    requeue(tx, job.inbox, job.number, seconds(now))
    return True


def _keep_unknown(recipient: Recipient, unknown: Mapping[str, str | None]) -> Recipient:
    """Keep the status `unknown` of a recipient who may have got the mail, if it is not sent now."""
    address = recipient.address
    if address not in unknown or recipient.status not in ("captured", "failed"):
        return recipient
    return Recipient(
        address, "unknown", f"not tried again ({recipient.detail}); {unknown[address]}"
    )


FIND = """
    SELECT m.number, i.id, m.details, o.state, o.is_scheduled, m.inbox, o.draft_id,
           o.draft_revision, o.unknown, o.queued_at FROM messages m
      JOIN inboxes i ON i.number = +m.inbox
      LEFT JOIN outbox o ON +o.inbox = +m.inbox AND o.message = m.number
     WHERE m.id = :id AND m.is_outbound = 1
"""


def retry_mail(tx: Transaction, message_id: str, visible: Visible, now: datetime) -> None:
    """Queue the message again for recipients who did not get it, or make waiting ones due now.

    The transport of each recipient is determined again, as for a scheduled mail that is due.

    Raises:
        NotFound: there is no such sent message.
        Conflict: no recipient is left, it is being submitted, it is scheduled for later, or it was
    cancelled and its draft changed or sent since.
    """
    row = _row(tx, message_id, visible)
    again = [r for r in _recipients(row) if r.status in AGAIN]
    if not again:
        raise Conflict(f"all recipients have {message_id} already")
    if row[3] in ("claimed", "handing_over"):
        raise Conflict(f"{message_id} is being submitted right now")
    if any(r.status == "scheduled" for r in again) and row[9] > seconds(now):
        raise Conflict(
            f"{message_id} is scheduled for {moment(row[9]):%Y-%m-%d %H:%M} UTC; cancel_message "
            "makes it a draft again, which can be sent now without its send_at"
        )
    inbox, number = row[5], row[0]
    if row[6] is not None:
        mark_sent_again(tx, row[6], row[7], message_id, now)
    changes = {r.address: Recipient(r.address, "queued") for r in again}
    set_recipients(tx, inbox, number, changes, now)
    statuses = {r.status for r in _recipients(row)}
    cancel_draft_removal(tx, inbox, message_id)
    remove_sent_copy(tx, inbox, number, message_id, statuses=statuses)
    tx.run(f"DELETE FROM outbox WHERE {ROW_KEY}", inbox=inbox, message=number)
    everyone = tuple(changes.get(r.address, r) for r in _recipients(row))
    insert_outbox_entry(tx, inbox, number, everyone, seconds(now), is_scheduled=True)
    unknown = _former_unknown(row) | {r.address: r.detail for r in again if r.status == "unknown"}
    if unknown:
        _set_columns(tx, row, unknown=dumps(unknown))


def cancel_mail(tx: Transaction, message_id: str, visible: Visible, now: datetime) -> None:
    """Cancel a message for recipients who have not got it.

    Recipients who may have got an earlier attempt become `unknown` again.

    Raises:
        NotFound: there is no such sent message.
        Conflict: no recipient is waiting, or it is being submitted.
    """
    row = _row(tx, message_id, visible)
    waiting = [r for r in _recipients(row) if r.status in OPEN]
    if not waiting:
        raise Conflict(f"no recipient of {message_id} is waiting; there is nothing to cancel")
    if row[3] in ("claimed", "handing_over"):
        raise Conflict(f"{message_id} is being submitted right now")
    unknown = _former_unknown(row)
    cancelled = {r.address: _cancelled(r.address, unknown) for r in waiting}
    set_recipients(tx, row[5], row[0], cancelled, now)
    copy_to_sent(tx, row[5], row[0], now)
    requeue(tx, row[5], row[0], seconds(now))
    if unknown or len(cancelled) < len(_recipients(row)):
        return
    draft = restore_draft(tx, message_id)
    if draft is not None:
        _set_columns(tx, row, draft_id=draft[0], draft_revision=draft[1])


def _cancelled(address: str, unknown: Mapping[str, str | None]) -> Recipient:
    if address in unknown:
        return Recipient(address, "unknown", unknown[address])
    return Recipient(address, "failed", "cancelled before it was sent")


def _former_unknown(row: Row) -> dict[str, str | None]:
    """The recipients that were `unknown` before a retry, with their details."""
    return dict(from_text(row[8] or "{}"))


def _set_columns(tx: Transaction, row: Row, **values: object) -> None:
    changes = ", ".join(f"{name} = :{name}" for name in values)
    tx.run(f"UPDATE outbox SET {changes} WHERE {ROW_KEY}", inbox=row[5], message=row[0], **values)


def _row(tx: Transaction, message_id: str, visible: Visible) -> Row:
    row = tx.one(FIND, id=message_id)
    if row is None or not visible.sees(row[1]):
        raise NotFound(no_such("sent message", message_id))
    return row


def _recipients(row: Row) -> list[Recipient]:
    return [Recipient(**r) for r in from_text(row[2])["recipients"] or ()]
