"""Claims on the outbox by one worker at a time, and settling a claimed mail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from postroom.approval import mail_digest
from postroom.errors import Forbidden
from postroom.model.mail.message import Recipient
from postroom.model.mail.sending import (
    GIVE_UP_AFTER,
    PENDING_STATUSES,
    TRANSPORTS,
    Claimed,
    Envelope,
    OutboxJob,
    Transport,
)
from postroom.model.mail.storage import Gate, NewMessage
from postroom.store.sql.messages.message_insert import add_message
from postroom.store.sql.outbox.holds import NEXT_HOLD, expire_holds, pass_gate_again
from postroom.store.sql.outbox.queue import (
    ABOUT,
    LISTED_AFTER,
    ROW_KEY,
    copy_to_sent,
    count_domains,
    is_claimed,
    is_paused,
    recipients_of,
    release_domains,
    requeue,
    row_of,
    set_outcomes,
    set_recipients,
)
from postroom.store.sql.statements import (
    any_of,
    dumps,
    from_text,
    moment,
    moment_or_none,
    scalar,
    seconds,
    update,
)
from postroom.store.transaction import Row, Transaction

UNKNOWN = (
    "it is not known whether the relay accepted it: the connection ended before its reply; ask the "
    "recipient, then retry or ignore it"
)
_MAX_RETRY_S = int(timedelta(hours=25).total_seconds())
"""A retry further ahead than any back-off was scheduled before the clock was set back."""

PER_ACCOUNT = 4
"""Concurrent submissions per account, so that a server that hangs does not block other accounts."""

STALE = """
    SELECT inbox, message, state, pending FROM outbox
     WHERE state IN ('claimed', 'handing_over') AND until <= :now
"""
DUE = """
    SELECT o.message, m.id, m.from_address, m.raw, m.details, o.attempts, o.queued_at,
           o.is_scheduled, i.account_id, o.inbox, o.first_attempt_at, i.id,
           o.sent_by, o.sha256, o.authors
      FROM {source} JOIN messages m ON +m.inbox = +o.inbox AND m.number = o.message
      JOIN inboxes i ON i.number = +m.inbox
     WHERE o.state = 'waiting' AND {which}
       AND (o.next_at <= :now OR (+o.is_scheduled = 0 AND o.next_at > :beyond))
     ORDER BY o.next_at, o.message LIMIT :limit
"""
_OF_ACCOUNTS = "SELECT number FROM inboxes WHERE account_id IS NOT NULL"
LOCAL = ("outbox o", "o.is_scheduled = 1")
RELAY = ("outbox o", f"o.is_scheduled = 0 AND o.inbox NOT IN ({_OF_ACCOUNTS})")
ACCOUNT = (
    f"({_OF_ACCOUNTS}) a CROSS JOIN outbox o",
    "o.inbox = a.number AND +o.is_scheduled = 0",
)
SOURCES: Mapping[Transport, tuple[str, str]] = {"local": LOCAL, "relay": RELAY, "account": ACCOUNT}
"""The outbox rows of each transport, so that a full transport does not block the others."""

FREE = """
    SELECT 1 FROM outbox o
     WHERE o.inbox = :inbox AND o.message = :message AND o.state = 'waiting'
"""
"""Rows are locked one by one, by inbox, because a lock cannot span several machines."""

NEXT = """
    SELECT o.next_at FROM {source} WHERE o.state = 'waiting' AND {which}
     ORDER BY o.next_at LIMIT 1
"""
NEXT_EXPIRY = "SELECT min(until) FROM outbox WHERE state IN ('claimed', 'handing_over')"


def claim_mail(
    tx: Transaction,
    holder: str,
    *,
    now: datetime,
    until: datetime,
    free: Mapping[Transport, int],
    max_per_domain: int,
    active: Sequence[OutboxJob] = (),
) -> Claimed:
    """Claim due mail, renew the claims on *active* mail, and release expired claims.

    *free* is the number of mails that the worker can take for each transport. Mail to a domain that
    has reached its limit for the hour is left for the next hour.
    """
    renew_mail(tx, active, until)
    lost: dict[str, int] = {}
    for inbox, number, state, pending in tx.all(STALE, now=seconds(now)):
        lost |= _expire(tx, (inbox, number), state, pending, now)
    expire_holds(tx, now)
    if is_paused(tx):
        return Claimed((), lost)
    due = [
        row for transport, limit in free.items() for row in _due(tx, transport, limit, now, active)
    ]
    found = [_job(row, holder) for row in due]
    jobs = [job for job in found if tx.claimable(FREE, "o", **row_of(job))]
    taken = [job for job in jobs if job.is_scheduled or count_domains(tx, job, now, max_per_domain)]
    for job in taken:
        update(tx, "outbox", row_of(job), state="claimed", holder=holder, until=seconds(until))
    return Claimed(tuple(taken), lost)


def _due(
    tx: Transaction, transport: Transport, limit: int, now: datetime, active: Sequence[OutboxJob]
) -> list[Row]:
    """Due mail of one transport; per account at most `PER_ACCOUNT`, including active mail."""
    source, which = SOURCES[transport]
    busy = Counter(job.account_id for job in active if job.transport == transport == "account")
    among, full = any_of("full", [account for account, n in busy.items() if n >= PER_ACCOUNT])
    others = f"{which} AND i.account_id NOT {among}" if full else which
    times = {"now": seconds(now), "beyond": seconds(now) + _MAX_RETRY_S}
    rows = tx.all(DUE.format(source=source, which=others), **times, **full, limit=limit)
    return rows if transport != "account" else [row for row in rows if _has_capacity(busy, row[8])]


def _has_capacity(busy: Counter[str | None], account_id: str) -> bool:
    busy[account_id] += 1
    return busy[account_id] <= PER_ACCOUNT


def _expire(
    tx: Transaction, at: tuple[int, int], state: str, pending: str | None, now: datetime
) -> dict[str, int]:
    """Release an expired claim; return the number of `unknown` recipients by message."""
    addresses = from_text(pending or "[]") if state == "handing_over" else []
    lost = {address: Recipient(address, "unknown", UNKNOWN) for address in addresses}
    count = set_outcomes(tx, *at, lost, now)
    copy_to_sent(tx, *at, now + LISTED_AFTER)
    return _requeued(tx, *at, count, now)


def _job(row: Row, holder: str) -> OutboxJob:
    recipients = from_text(row[4])["recipients"]
    everyone = [r["address"] for r in recipients]
    addresses = tuple(r["address"] for r in recipients if r["status"] in PENDING_STATUSES)
    # older versions recorded only the number of attempts
    first_attempt_at = row[6] if row[10] is None and row[5] else row[10]
    return OutboxJob(
        inbox=row[9],
        number=row[0],
        message_id=row[1],
        envelope=Envelope(row[2], addresses),
        raw=row[3],
        attempts=row[5],
        queued_at=moment(row[6]),
        is_scheduled=bool(row[7]),
        holder=holder,
        account_id=row[8],
        tried_since=moment_or_none(first_attempt_at),
        inbox_id=row[11],
        sent_by=row[12],
        authors=tuple(from_text(row[14] or "[]")),
        is_unchanged=row[13] is None or row[13] == mail_digest(row[3], row[2], everyone),
    )


def next_mail_at(
    tx: Transaction, transports: Collection[Transport] = TRANSPORTS
) -> datetime | None:
    """When the next mail of these transports is due, or a claim may expire."""
    if is_paused(tx):
        return None
    sources = [SOURCES[transport] for transport in transports]
    queries = [NEXT.format(source=source, which=which) for source, which in sources]
    times = [scalar(tx, sql) for sql in (*queries, NEXT_EXPIRY, NEXT_HOLD)]
    return min((moment(time) for time in times if time is not None), default=None)


def renew_mail(tx: Transaction, jobs: Sequence[OutboxJob], until: datetime) -> None:
    """Extend the claims of a worker on mail that it still works on."""
    for job in jobs:
        tx.run(
            f"""UPDATE outbox SET until = :until
                WHERE {ROW_KEY} AND holder = :holder AND state <> 'done'""",
            **row_of(job),
            holder=job.holder,
            until=seconds(until),
        )


def begin_transmission(tx: Transaction, job: OutboxJob, accepted: Sequence[str]) -> bool:
    """Record that the message data is sent now; False if the claim was lost."""
    changed = tx.run(
        f"""UPDATE outbox SET state = 'handing_over', pending = :pending
            WHERE {ROW_KEY} AND holder = :holder AND state = 'claimed'""",
        pending=dumps(list(accepted)),
        **row_of(job),
        holder=job.holder,
    )
    return changed > 0


def release_mail(tx: Transaction, job: OutboxJob, next_at: datetime | None = None) -> None:
    """Release a claim before any data was sent, without counting an attempt."""
    if is_claimed(tx, job):
        if not job.is_scheduled:
            release_domains(tx, job)
        requeue(tx, job.inbox, job.number, seconds(next_at or job.queued_at))


SLACK = timedelta(hours=4)
"""Extra time for a worker that attempted the mail before, so that it makes the last attempt."""

REPORT_AFTER = timedelta(minutes=1)
"""How long other workers with the login may take before the mail is reported as waiting."""

_BATCH_SIZE = 200
UNRELAYED = """
    SELECT o.inbox, o.message, o.first_attempt_at FROM {source}
     WHERE o.state = 'waiting' AND {which} AND o.next_at <= :now
       AND (o.first_attempt_at IS NULL OR (o.attempts = 0 AND o.first_attempt_at <= :long)
            OR o.first_attempt_at <= :longer)
     ORDER BY o.next_at, o.message LIMIT :limit
"""
SET_FIRST_ATTEMPT = (
    f"UPDATE outbox SET first_attempt_at = coalesce(first_attempt_at, :now) WHERE {ROW_KEY}"
)


def defer_unrelayed(tx: Transaction, why: str, now: datetime) -> dict[str, int]:
    """Record that no relay is configured; return the number of abandoned recipients per message.

    The mail stays due for any worker with a relay until it is abandoned.
    """
    if is_paused(tx):
        return {}
    source, which = SOURCES["relay"]
    long = seconds(now - GIVE_UP_AFTER)
    times = {"now": seconds(now), "long": long, "longer": seconds(now - GIVE_UP_AFTER - SLACK)}
    rows = tx.all(UNRELAYED.format(source=source, which=which), **times, limit=_BATCH_SIZE)
    abandoned: dict[str, int] = {}
    for inbox, number, since in rows:
        if not tx.claimable(FREE, "o", inbox=inbox, message=number):
            continue
        if since is None:
            _set_open_recipients(tx, inbox, number, "queued", why, now)
            tx.run(SET_FIRST_ATTEMPT, now=seconds(now), inbox=inbox, message=number)
        else:
            abandoned |= _give_up(tx, inbox, number, why, now)
    return abandoned


def defer_mail(
    tx: Transaction, job: OutboxJob, why: str, *, now: datetime, next_at: datetime
) -> dict[str, int]:
    """Release a claim to workers that have the login, or abandon mail that waited too long for one.

    Once attempted, a worker has the login, and the response of the provider stays as the reason.
    """
    if not is_claimed(tx, job):
        return {}
    waited = now - (job.tried_since or now)
    release_mail(tx, job, next_at)
    if waited >= GIVE_UP_AFTER + (SLACK if job.attempts else timedelta()):
        return _give_up(tx, job.inbox, job.number, why, now)
    tx.run(SET_FIRST_ATTEMPT, now=seconds(now), **row_of(job))
    if waited >= REPORT_AFTER and not job.attempts:
        _set_open_recipients(tx, job.inbox, job.number, "queued", why, now)
    return {}


def _give_up(tx: Transaction, inbox: int, number: int, why: str, now: datetime) -> dict[str, int]:
    detail = f"abandoned after 48 hours: {why}"
    count = _set_open_recipients(tx, inbox, number, "bounced", detail, now)
    copy_to_sent(tx, inbox, number, now)
    return _requeued(tx, inbox, number, count, now)


def _requeued(
    tx: Transaction, inbox: int, number: int, count: int, now: datetime
) -> dict[str, int]:
    """Queue what remains of a mail; return the *count* of recipients that were given up."""
    requeue(tx, inbox, number, seconds(now))
    about = tx.one(ABOUT, inbox=inbox, number=number) if count else None
    return {about[2]: count} if about else {}


def _set_open_recipients(
    tx: Transaction, inbox: int, number: int, status: str, why: str, now: datetime
) -> int:
    """Set status and detail of the open recipients that differ, and return their number."""
    changes = {
        r.address: Recipient(r.address, status, why)
        for r in recipients_of(tx, inbox, number)
        if r.status in PENDING_STATUSES and (r.status, r.detail) != (status, why)
    }
    set_recipients(tx, inbox, number, changes, now)
    return len(changes)


COUNT_ATTEMPT = f"""
    UPDATE outbox SET attempts = attempts + 1,
           first_attempt_at = CASE WHEN attempts = 0 THEN :now
                                   ELSE coalesce(first_attempt_at, queued_at) END
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


def settle_part(
    tx: Transaction, job: OutboxJob, recipients: Mapping[str, Recipient], *, now: datetime
) -> None:
    """Record final outcomes of a mail that is still being handed over to other recipients.

    If the worker dies, those others are tried again: nothing of theirs is pending.
    """
    set_outcomes(tx, job.inbox, job.number, recipients, now)
    update(tx, "outbox", {**row_of(job), "holder": job.holder}, pending="[]")


def deliver_scheduled(
    tx: Transaction,
    job: OutboxJob,
    copies: Sequence[NewMessage],
    recipients: Mapping[str, Recipient],
    now: datetime,
    gate: Gate | None = None,
) -> bool:
    """Deliver the local copies of a scheduled mail that is due, and queue the rest for the relay.

    It passes the *gate* again, because policies may have changed since it was written. Returns
    False if the claim was lost.
    """
    if not is_claimed(tx, job):
        return False
    try:
        if gate is not None and job.is_unchanged and _is_held(tx, job, recipients, now, gate):
            return True
    except Forbidden as refused:
        why = f"not sent: {refused}"
        copies, recipients = (), {a: Recipient(a, "failed", why) for a in recipients}
    for copy in copies:
        add_message(tx, copy)
    row = tx.one(f"SELECT unknown FROM outbox WHERE {ROW_KEY}", **row_of(job))
    unknown = from_text((row[0] if row else None) or "{}")
    routed = {address: _keep_unknown(r, unknown) for address, r in recipients.items()}
    set_recipients(tx, job.inbox, job.number, routed, now)
    copy_to_sent(tx, job.inbox, job.number, now)
    update(tx, "outbox", row_of(job), is_scheduled=0)
    requeue(tx, job.inbox, job.number, seconds(now))
    return True


def _is_held(
    tx: Transaction,
    job: OutboxJob,
    recipients: Mapping[str, Recipient],
    now: datetime,
    gate: Gate,
) -> bool:
    """Whether a mail that is due waits for a person, which is recorded. Raises Forbidden."""
    leaving = [r.address for r in recipients.values() if r.status == "queued"]
    passed = pass_gate_again(
        tx, job.inbox, job.number, gate, job.authors, leaving, is_due=True, now=now
    )
    if passed.hold is None:
        return False
    why = "; ".join(passed.hold.reasons)
    held = {address: Recipient(address, "held", why) for address in recipients}
    set_recipients(tx, job.inbox, job.number, held, now)
    waits = {"state": "held", "next_at": seconds(passed.hold.expires_at), "sha256": passed.sha256}
    update(tx, "outbox", row_of(job), **waits, holder=None, until=None, pending=None)
    tx.announce("outbox")
    return True


def _keep_unknown(recipient: Recipient, unknown: Mapping[str, str | None]) -> Recipient:
    """Keep the status `unknown` of a recipient who may have got the mail, if it is not sent now."""
    address = recipient.address
    if address not in unknown or recipient.status not in ("captured", "failed"):
        return recipient
    return Recipient(
        address, "unknown", f"not tried again ({recipient.detail}); {unknown[address]}"
    )
