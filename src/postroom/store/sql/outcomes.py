"""What became of a sent message, recipient by recipient."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from postroom.model.message import Recipient
from postroom.model.sending import overall_status
from postroom.model.stored import DeliveryReport, Fate
from postroom.store.sql.events import About, add_event, add_outcomes
from postroom.store.sql.values import dumps, from_text
from postroom.store.transaction import Transaction

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
HANDED_OVER = """
    SELECT pending FROM outbox
     WHERE inbox = :inbox AND message = :number AND state = 'handing_over'
"""
_REPORTABLE = ("sent", "unknown")
_BY_REPORT = ("bounced", "delivered")
"""What is said of whom a mail is on its way to only if a report was faster than the relay."""


def set_outcomes(
    tx: Transaction, inbox: int, number: int, outcomes: Mapping[str, Recipient], now: datetime
) -> int:
    """Write down what became of those a mail was handed over for, and return of how many.

    Of whom a report has spoken already, that stands: it knows more than the relay.
    """
    row = tx.one(ABOUT, inbox=inbox, number=number)
    recipients = from_text(row[3])["recipients"] if row else ()
    reported = {r["address"] for r in recipients if r["status"] in _BY_REPORT}
    news = {address: r for address, r in outcomes.items() if address not in reported}
    set_recipients(tx, inbox, number, news, now)
    return len(news)


def set_recipients(
    tx: Transaction, inbox: int, number: int, changes: Mapping[str, Recipient], now: datetime
) -> None:
    """Change what is said of some recipients, and tell of it."""
    row = tx.one(ABOUT, inbox=inbox, number=number)
    if row is None or not changes:
        return
    about, details = About(*row[:3]), from_text(row[3])
    before = {r["address"]: r["status"] for r in details["recipients"]}
    after = tuple(changes.get(r["address"], Recipient(**r)) for r in details["recipients"])
    details["recipients"] = after
    it = {"inbox": inbox, "n": number}
    tx.run(
        "UPDATE messages SET details = :d WHERE inbox = :inbox AND number = :n",
        d=dumps(details),
        **it,
    )
    tx.run(
        "UPDATE outbox SET status = :status WHERE inbox = :inbox AND message = :n",
        status=overall_status(after),
        **it,
    )
    moved = [r for r in changes.values() if before.get(r.address) not in (None, r.status)]
    add_outcomes(tx, moved, now, about)
    delayed = [
        r
        for r in changes.values()
        if r.detail and r.status == "queued" and before.get(r.address) == "queued"
    ]
    if delayed:
        told = [{"address": r.address, "detail": r.detail} for r in delayed]
        add_event(tx, "message.deferred", now, about, {"recipients": told})


def apply_report(tx: Transaction, inbox: int, report: DeliveryReport, now: datetime) -> None:
    """Tie a delivery report to the message it speaks of, if the inbox sent one.

    It may be here before the relay has said that it has the mail, or though we never heard it.
    """
    row = tx.one(REPORTED, inbox=inbox, internet_id=report.internet_message_id)
    if row is None:
        return
    pending = tx.one(HANDED_OVER, inbox=inbox, number=row[0])
    handed_over = from_text(pending[0] or "[]") if pending else ()
    recipients = {r["address"].lower(): r for r in from_text(row[1])["recipients"] or ()}
    changes = {
        r["address"]: Recipient(r["address"], fate.status, fate.detail)
        for fate in report.fates
        if (r := _meant(recipients, fate, report))
        and (r["status"] in _REPORTABLE or r["address"] in handed_over)
    }
    set_recipients(tx, inbox, row[0], changes, now)


def _meant(
    recipients: Mapping[str, dict[str, Any]], fate: Fate, report: DeliveryReport
) -> dict[str, Any] | None:
    """Of whom a report speaks: by an address that we wrote to, or the only one there is."""
    for address in fate.addresses:
        if found := recipients.get(address.lower()):
            return found
    is_clear = fate.addresses and len(recipients) == len(report.fates) == 1
    return next(iter(recipients.values())) if is_clear else None
