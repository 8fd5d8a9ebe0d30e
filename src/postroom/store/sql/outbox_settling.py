"""What became of claimed mail, written down in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from postroom.model.message import Recipient
from postroom.model.outbox import OutboxJob
from postroom.model.stored import NewMessage
from postroom.store.sql.adding import add_message
from postroom.store.sql.outbox import IT, copy_to_sent, is_claimed, row_of, wait_again
from postroom.store.sql.outcomes import set_outcomes, set_recipients
from postroom.store.sql.values import from_text, seconds
from postroom.store.transaction import Transaction

TRIED = f"""
    UPDATE outbox SET attempts = attempts + 1,
           tried_since = CASE attempts WHEN 0 THEN :now ELSE coalesce(tried_since, queued_at) END
     WHERE {IT}
"""


def settle_mail(
    tx: Transaction,
    job: OutboxJob,
    recipients: Mapping[str, Recipient],
    *,
    now: datetime,
    next_at: datetime,
) -> None:
    """Write down what became of each recipient; who is still queued is tried again later.

    Whoever took over because we seemed dead has called these recipients unknown; now we know.
    """
    row = tx.one(f"SELECT holder FROM outbox WHERE {IT}", **row_of(job))
    if row is None:
        return
    if row[0] != job.holder:
        recipients = {a: r for a, r in recipients.items() if r.status in ("sent", "failed")}
    set_outcomes(tx, job.inbox, job.number, recipients, now)
    copy_to_sent(tx, job.inbox, job.number, next_at)
    tx.run(TRIED, now=seconds(now), **row_of(job))
    if row[0] == job.holder:
        wait_again(tx, job.inbox, job.number, seconds(next_at))


def deliver_scheduled(
    tx: Transaction,
    job: OutboxJob,
    copies: Sequence[NewMessage],
    recipients: Mapping[str, Recipient],
    now: datetime,
) -> bool:
    """The time of a scheduled mail has come: local copies arrive, the rest waits for the relay.

    False if the claim was lost: then whoever has it does all this.
    """
    if not is_claimed(tx, job):
        return False
    for copy in copies:
        add_message(tx, copy)
    row = tx.one(f"SELECT unknown FROM outbox WHERE {IT}", **row_of(job))
    unknown = from_text((row[0] if row else None) or "{}")
    routed = {address: _or_unknown(r, unknown) for address, r in recipients.items()}
    set_recipients(tx, job.inbox, job.number, routed, now)
    copy_to_sent(tx, job.inbox, job.number, now)
    tx.run(f"UPDATE outbox SET is_scheduled = 0 WHERE {IT}", **row_of(job))
    wait_again(tx, job.inbox, job.number, seconds(now))
    return True


def _or_unknown(recipient: Recipient, unknown: Mapping[str, str | None]) -> Recipient:
    """Who may have got a mail before it was tried again may have it, if it does not go out now."""
    address = recipient.address
    if address not in unknown or recipient.status not in ("captured", "failed"):
        return recipient
    return Recipient(
        address, "unknown", f"not tried again ({recipient.detail}); {unknown[address]}"
    )
