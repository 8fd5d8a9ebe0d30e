"""The outbox: waiting mail, its status per recipient, its list, and restored backups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from postroom.model.inbox import OUTBOX, SENT
from postroom.model.mail.approval import Hold
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import (
    OUTBOX_STATUSES,
    PENDING_STATUSES,
    POSSIBLY_SENT_STATUSES,
    OutboxEntry,
    OutboxJob,
    OutboxQuery,
    OutboxState,
    overall_status,
    waits_until,
)
from postroom.model.mail.storage import DeliveryReport, RecipientStatus
from postroom.model.page import Found
from postroom.store.maintenance.lifecycle import CLEAR_STATE, refuse_sending
from postroom.store.sql.accounts.pushes import drop_draft, insert_sent_copy
from postroom.store.sql.events import MessageRef, add_event, add_outcomes
from postroom.store.sql.messages.thread_choice import add_reached
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    dumps,
    exists,
    from_text,
    hold_in,
    insert,
    moment,
    moment_or_none,
    scalar,
    seconds,
    update,
    visible_numbers,
)
from postroom.store.transaction import Row, Transaction

ABOUT = """
    SELECT m.inbox, t.id, m.id, m.details
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.inbox = :inbox AND m.number = :number
"""
REPORTED = """
    SELECT number, details FROM messages
     WHERE inbox = :inbox AND internet_id = :internet_id AND is_outbound = 1
     ORDER BY number DESC LIMIT 1
"""
IN_TRANSMISSION = """
    SELECT pending FROM outbox
     WHERE inbox = :inbox AND message = :number AND state = 'handing_over'
"""
PLACED = "SELECT 1 FROM remote_messages WHERE message = :message AND is_removed = 0 LIMIT 1"
_REPORTABLE = ("sent", "unknown")
_BY_REPORT = ("bounced", "delivered")
"""Statuses that only a delivery report sets while a mail is being submitted."""


def recipients_of(tx: Transaction, inbox: int, number: int) -> list[Recipient]:
    """The recipients of a sent message; none if it was removed."""
    sql = "SELECT details FROM messages WHERE inbox = :inbox AND number = :number"
    details = scalar(tx, sql, inbox=inbox, number=number)
    return [Recipient(**r) for r in from_text(details)["recipients"]] if details else []


def set_outcomes(
    tx: Transaction, inbox: int, number: int, outcomes: Mapping[str, Recipient], now: datetime
) -> int:
    """Record the outcome for recipients of a submission, and return how many were set.

    A status from a delivery report is kept: it is later information than that of the relay.
    """
    known = recipients_of(tx, inbox, number)
    reported = {recipient.address for recipient in known if recipient.status in _BY_REPORT}
    new = {address: r for address, r in outcomes.items() if address not in reported}
    set_recipients(tx, inbox, number, new, now)
    return len(new)


def set_recipients(
    tx: Transaction, inbox: int, number: int, changes: Mapping[str, Recipient], now: datetime
) -> None:
    """Set the status of some recipients, and add events."""
    row = tx.one(ABOUT, inbox=inbox, number=number)
    if row is None or not changes:
        return
    about, details = MessageRef(*row[:3]), from_text(row[3])
    before = {r["address"]: r["status"] for r in details["recipients"]}
    after = tuple(changes.get(r["address"], Recipient(**r)) for r in details["recipients"])
    details["recipients"] = after
    update(tx, "messages", {"inbox": inbox, "number": number}, details=dumps(details))
    update(tx, "outbox", {"inbox": inbox, "message": number}, status=overall_status(after))
    _move_with_outcome(tx, inbox, number, {r.status for r in after})
    moved = [r for r in changes.values() if before.get(r.address) not in (None, r.status)]
    add_reached(tx, inbox, moved)
    add_outcomes(tx, moved, now, about)
    recipients = [
        {"address": r.address, "detail": r.detail}
        for r in changes.values()
        if r.detail and r.status == "queued" and before.get(r.address) == "queued"
    ]
    if recipients:
        add_event(tx, "message.deferred", now, about, {"recipients": recipients})


def _move_with_outcome(tx: Transaction, inbox: int, number: int, statuses: set[str]) -> None:
    """Move a mail from Outbox to Sent once it has left, and back when it waits again.

    One that somebody moved elsewhere stays there, and so does one with a copy at its provider.
    """
    from postroom.store.sql.messages.message_changes import (  # late: it imports this module too
        message_state,
        set_message_state,
    )

    has_left = not statuses.isdisjoint(POSSIBLY_SENT_STATUSES)
    if not has_left and statuses.isdisjoint(PENDING_STATUSES):
        return
    source, target = (OUTBOX, SENT) if has_left else (SENT, OUTBOX)
    state = message_state(tx, inbox, number)
    if source not in state.mailboxes or (not has_left and tx.one(PLACED, message=number)):
        return
    mailboxes = tuple(target if name == source else name for name in state.mailboxes)
    set_message_state(tx, inbox, number, replace(state, mailboxes=mailboxes))


def apply_report(tx: Transaction, inbox: int, report: DeliveryReport, now: datetime) -> None:
    """Apply a delivery report to the sent message that it refers to.

    It may arrive before the relay has acknowledged the mail, or without that acknowledgement.
    """
    row = tx.one(REPORTED, inbox=inbox, internet_id=report.internet_message_id)
    if row is None:
        return
    pending = tx.one(IN_TRANSMISSION, inbox=inbox, number=row[0])
    in_transmission = from_text(pending[0] or "[]") if pending else ()
    recipients = {r["address"].lower(): r for r in from_text(row[1])["recipients"] or ()}
    changes = {
        r["address"]: Recipient(r["address"], reported.status, reported.detail)
        for reported in report.statuses
        if (r := _recipient_of(recipients, reported, report))
        and (r["status"] in _REPORTABLE or r["address"] in in_transmission)
    }
    set_recipients(tx, inbox, row[0], changes, now)


def _recipient_of(
    recipients: Mapping[str, dict[str, Any]], reported: RecipientStatus, report: DeliveryReport
) -> dict[str, Any] | None:
    """The recipient of a report entry: by address, or the only recipient."""
    for address in reported.addresses:
        if found := recipients.get(address.lower()):
            return found
    is_clear = reported.addresses and len(recipients) == len(report.statuses) == 1
    return next(iter(recipients.values())) if is_clear else None


IS_PAUSED = "SELECT 1 FROM metadata WHERE name IN ('outbox_paused', 'migrated', 'backup')"
"""An installation that was migrated away and a backup never send: another installation does."""

COUNT_WAITING = """
    SELECT count(*) FROM outbox WHERE state IN ('waiting', 'claimed', 'handing_over')
"""
_NOT_SENT = {"failed", "bounced"}
_MAY_BE_SENT = {"unknown", *PENDING_STATUSES}
ROW_KEY = "inbox = :inbox AND message = :message"
"""The condition for one row; `row_of` has its parameters."""


class GateResult(NamedTuple):
    """What the gate said of a mail: its digest, whose policies hold, and the hold, if it waits."""

    sha256: str
    authors: tuple[str, ...] = ()
    hold: Hold | None = None


def insert_outbox_entry(
    tx: Transaction,
    inbox: int,
    number: int,
    recipients: tuple[Recipient, ...],
    start: int,
    *,
    is_scheduled: bool,
    gate_result: GateResult,
    sent_by: str | None = None,
) -> None:
    """Insert a stored message that has passed the gate into the outbox: as `done` if nothing is to
    be sent, as `held` until its hold expires if a person decides.
    """
    statuses = {recipient.status for recipient in recipients}
    if statuses.isdisjoint((*OUTBOX_STATUSES, "captured")):
        return
    state = "done" if statuses.isdisjoint(PENDING_STATUSES) else "waiting"
    insert(
        tx,
        "outbox",
        inbox=inbox,
        message=number,
        state="held" if gate_result.hold else state,
        status=overall_status(recipients),
        attempts=0,
        queued_at=start,
        next_at=seconds(gate_result.hold.expires_at) if gate_result.hold else start,
        is_scheduled=int(is_scheduled),
        sent_by=sent_by,
        sha256=gate_result.sha256,
        authors=dumps(gate_result.authors),
    )
    tx.announce("outbox")


def row_of(job: OutboxJob) -> dict[str, object]:
    """The parameters of the row of a job."""
    return {"inbox": job.inbox, "message": job.number}


def is_claimed(tx: Transaction, job: OutboxJob) -> bool:
    """Whether the worker still has the claim and has not sent any data."""
    sql = f"SELECT 1 FROM outbox WHERE {ROW_KEY} AND holder = :holder AND state = 'claimed'"
    return exists(tx, sql, **row_of(job), holder=job.holder)


def copy_to_sent(tx: Transaction, inbox: int, number: int, at: datetime) -> None:
    """Store a copy in Sent unless the provider does, and remove the draft of a failed mail."""
    row = tx.one(ABOUT, inbox=inbox, number=number)
    if row is not None:
        statuses = {r["status"] for r in from_text(row[3])["recipients"]}
        insert_sent_copy(tx, inbox, number, row[2], statuses=statuses, at=seconds(at))
        if statuses & _NOT_SENT and statuses.isdisjoint(_MAY_BE_SENT):
            drop_draft(tx, inbox, number, row[2])


def requeue(tx: Transaction, inbox: int, number: int, next_at: int) -> None:
    """Make a message wait until *next_at*, or mark it as done if no recipient is open."""
    is_open = any(r.status in PENDING_STATUSES for r in recipients_of(tx, inbox, number))
    state = {"state": "waiting" if is_open else "done", "next_at": next_at}
    unclaimed = {"holder": None, "until": None, "pending": None}
    update(tx, "outbox", {"inbox": inbox, "message": number}, **state, **unclaimed)
    if is_open:
        tx.announce("outbox")


def is_paused(tx: Transaction) -> bool:
    return exists(tx, IS_PAUSED)


def pause_outbox(tx: Transaction, *, paused: bool) -> OutboxState:
    """Pause or resume the outbox. Raises Conflict if this installation may not send."""
    if paused:
        insert(tx, "metadata", " ON CONFLICT DO NOTHING", name="outbox_paused", value=b"\1")
    else:
        refuse_sending(tx)
        tx.run("DELETE FROM metadata WHERE name = 'outbox_paused'")
    tx.announce("outbox")
    return outbox_state(tx)


def outbox_state(tx: Transaction) -> OutboxState:
    """Whether the outbox is paused, and how many messages wait in it."""
    return OutboxState(is_paused(tx), int(scalar(tx, COUNT_WAITING)))


DOMAIN_HOUR = "SELECT count(*), min(at) FROM domain_sends WHERE domain = :domain"
RELEASE_DOMAIN = """
    DELETE FROM domain_sends
     WHERE number = (SELECT max(number) FROM domain_sends WHERE domain = :domain)
"""
_HOUR_S = 3600


def count_domains(tx: Transaction, job: OutboxJob, now: datetime, limit: int) -> bool:
    """Count a mail for each of its domains, or delay it until all are below their limit."""
    domains = domains_of(job)
    since = seconds(now) - _HOUR_S
    tx.run("DELETE FROM domain_sends WHERE at <= :since", since=since)
    rows = [tx.one(DOMAIN_HOUR, domain=domain) for domain in domains]
    full = [int(row[1]) for row in rows if row is not None and row[0] >= limit]
    if full:
        update(tx, "outbox", row_of(job), next_at=max(full) + _HOUR_S)
        return False
    for domain in domains:
        insert(tx, "domain_sends", domain=domain, at=seconds(now))
    return True


def release_domains(tx: Transaction, job: OutboxJob) -> None:
    """Undo `count_domains`."""
    for domain in domains_of(job):
        tx.run(RELEASE_DOMAIN, domain=domain)


def domains_of(job: OutboxJob) -> set[str]:
    return {address.rpartition("@")[2].lower() for address in job.envelope.recipients}


_TABLES = """outbox o JOIN messages m ON +m.inbox = +o.inbox AND m.number = o.message
    JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
    JOIN inboxes i ON i.number = +m.inbox"""
_COLUMNS = """o.message, m.id, t.id, i.id, m.subject, m.details, o.attempts, o.queued_at, o.next_at,
    o.state"""
_LISTING = Listing(_COLUMNS, _TABLES, "o.message", is_newest_first=True)


def find_outbox(tx: Transaction, query: OutboxQuery) -> Found[OutboxEntry]:
    """One page of messages that are not sent yet or failed, newest first."""
    read = partial(_entry, is_paused=is_paused(tx))
    return _LISTING.page(tx, _conditions(tx, query), query.page, read)


def _conditions(tx: Transaction, query: OutboxQuery) -> Conditions:
    where = Conditions()
    where.within("o.inbox", visible_numbers(tx, query.visible))
    where.among("o.status", "status", [query.status] if query.status else OUTBOX_STATUSES)
    return where


def _entry(row: Row, *, is_paused: bool) -> OutboxEntry:
    details = from_text(row[5])
    recipients = tuple(Recipient(**r) for r in details["recipients"])
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
        send_at=waits_until(recipients, moment_or_none(details.get("send_at"))),
        hold=hold_in(details),
    )


POSSIBLY_SENT = (
    "it was in the outbox when this backup was made, and may have been sent since; ask the "
    "recipient, then retry or ignore it"
)
LISTED_AFTER = timedelta(minutes=1)
"""How long a provider may take to list a mail that it has sent."""

WAITING = """
    SELECT inbox, message FROM outbox
     WHERE state IN ('waiting', 'claimed', 'handing_over')
       AND (is_scheduled = 0 OR queued_at <= :now)
     ORDER BY inbox, message
"""


def restore_backup(tx: Transaction) -> int:
    """Let a backup send mail; return the number of mails that may have been sent already."""
    tx.run(CLEAR_STATE)
    return mark_unknown(tx, datetime.now(UTC))


def mark_unknown(tx: Transaction, now: datetime) -> int:
    """Set the recipients of due mail to `unknown`, and return the number of mails.

    Mail that is scheduled for later stays scheduled: no other installation has sent it.
    """
    rows = tx.all(WAITING, now=seconds(now))
    for inbox, number in rows:
        unknown = {
            r.address: Recipient(r.address, "unknown", POSSIBLY_SENT)
            for r in recipients_of(tx, inbox, number)
            if r.status in PENDING_STATUSES
        }
        set_outcomes(tx, inbox, number, unknown, now)
        copy_to_sent(tx, inbox, number, now + LISTED_AFTER)
        requeue(tx, inbox, number, seconds(now))
    return len(rows)
