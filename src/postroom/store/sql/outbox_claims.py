"""What waits in the outbox, claimed by one worker at a time and kept or given back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from postroom.model.message import Recipient
from postroom.model.outbox import WAYS, Claimed, Envelope, OutboxJob, Way
from postroom.model.sending import OPEN
from postroom.store.sql.outbox import IT, copy_to_sent, is_claimed, is_paused, row_of, wait_again
from postroom.store.sql.outbox_domains import UNCOUNT, domains_of, has_room
from postroom.store.sql.outcomes import ABOUT, set_outcomes
from postroom.store.sql.values import any_of, dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

UNKNOWN = (
    "it is not known whether the relay took it: the connection ended before it said so; ask the "
    "recipient, then retry it or leave it"
)
_BEYOND_S = int(timedelta(hours=25).total_seconds())
"""A retry that lies further ahead than any back-off, or than anybody may tell us to wait, was
planned before the clock was set back."""

PER_ACCOUNT = 4
"""So many mails of one account are handed over at once: its server may hang, and others wait."""

_SEEN_AFTER = timedelta(minutes=1)
"""So long it may take until a provider shows what it has sent."""

STALE = """
    SELECT inbox, message, state, pending FROM outbox
     WHERE state IN ('claimed', 'handing_over') AND until <= :now
"""
DUE = """
    SELECT o.message, m.id, m.from_address, m.raw, m.details, o.attempts, o.queued_at,
           o.is_scheduled, i.account_id, o.inbox, o.tried_since
      FROM {source} JOIN messages m ON +m.inbox = +o.inbox AND m.number = o.message
      JOIN inboxes i ON i.number = +m.inbox
     WHERE o.state = 'waiting' AND {which}
       AND (o.next_at <= :now OR (+o.is_scheduled = 0 AND o.next_at > :beyond))
     ORDER BY o.next_at, o.message LIMIT :limit
"""
_OF_ACCOUNTS = "SELECT number FROM inboxes WHERE account_id IS NOT NULL"
HOUSE = ("outbox o", "o.is_scheduled = 1")
RELAY = ("outbox o", f"o.is_scheduled = 0 AND o.inbox NOT IN ({_OF_ACCOUNTS})")
ACCOUNT = (
    f"({_OF_ACCOUNTS}) a CROSS JOIN outbox o",
    "o.inbox = a.number AND +o.is_scheduled = 0",
)
WHICH: Mapping[Way, tuple[str, str]] = {"house": HOUSE, "relay": RELAY, "account": ACCOUNT}
"""Where the mail of each way is found, so that what waits for one keeps no other waiting."""

FREE = """
    SELECT 1 FROM outbox o
     WHERE o.inbox = :inbox AND o.message = :message AND o.state = 'waiting'
"""
"""Locked one by one, each in its own inbox: over several machines no lock reaches all rows."""

CLAIM = """
    UPDATE outbox SET state = 'claimed', holder = :holder, until = :until
     WHERE inbox = :inbox AND message = :message
"""
NEXT = """
    SELECT o.next_at FROM {source} WHERE o.state = 'waiting' AND {which}
     ORDER BY o.next_at LIMIT 1
"""
NEXT_LEFT = "SELECT min(until) FROM outbox WHERE state IN ('claimed', 'handing_over')"


def claim_mail(
    tx: Transaction,
    holder: str,
    *,
    now: datetime,
    until: datetime,
    free: Mapping[Way, int],
    most_per_domain: int,
    active: Sequence[OutboxJob] = (),
) -> Claimed:
    """Take over what is due, and what is left behind: nobody works on it, not even we."""
    renew_mail(tx, active, until)
    lost: dict[str, int] = {}
    for inbox, number, state, pending in tx.all(STALE, now=seconds(now)):
        lost |= _abandon(tx, (inbox, number), state, pending, now)
    if is_paused(tx):
        return Claimed((), lost)
    due = [row for way, most in free.items() for row in _due(tx, way, most, now, active)]
    found = [_job(row, holder) for row in due]
    jobs = [job for job in found if tx.claimable(FREE, "o", **row_of(job))]
    taken = [job for job in jobs if job.is_scheduled or has_room(tx, job, now, most_per_domain)]
    for job in taken:
        tx.run(CLAIM, **row_of(job), holder=holder, until=seconds(until))
    return Claimed(tuple(taken), lost)


def _due(
    tx: Transaction, way: Way, most: int, now: datetime, active: Sequence[OutboxJob]
) -> list[Row]:
    """What is due by one way; of an account no more than its share, with what is active of it."""
    source, which = WHICH[way]
    busy = Counter(job.account_id for job in active if job.way == way == "account")
    among, full = any_of("full", [account for account, n in busy.items() if n >= PER_ACCOUNT])
    others = f"{which} AND i.account_id NOT {among}" if full else which
    times = {"now": seconds(now), "beyond": seconds(now) + _BEYOND_S}
    rows = tx.all(DUE.format(source=source, which=others), **times, **full, limit=most)
    return rows if way != "account" else [row for row in rows if _has_share(busy, row[8])]


def _has_share(busy: Counter[str | None], account_id: str) -> bool:
    busy[account_id] += 1
    return busy[account_id] <= PER_ACCOUNT


def _abandon(
    tx: Transaction, at: tuple[int, int], state: str, pending: str | None, now: datetime
) -> dict[str, int]:
    """A worker died: what it only asked for waits again; of which message how many are unknown."""
    addresses = from_text(pending or "[]") if state == "handing_over" else []
    lost = {address: Recipient(address, "unknown", UNKNOWN) for address in addresses}
    count = set_outcomes(tx, *at, lost, now)
    copy_to_sent(tx, *at, now + _SEEN_AFTER)
    wait_again(tx, *at, seconds(now))
    about = tx.one(ABOUT, inbox=at[0], number=at[1]) if count else None
    return {about[2]: count} if about else {}


def _job(row: Row, holder: str) -> OutboxJob:
    recipients = from_text(row[4])["recipients"]
    addresses = tuple(r["address"] for r in recipients if r["status"] in OPEN)
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
        tried_since=_tried_since(row),
    )


def _tried_since(row: Row) -> datetime | None:
    """Since when a mail is tried; a version before this wrote down only how often it was."""
    if row[10] is not None:
        return moment(row[10])
    return moment(row[6]) if row[5] else None


def next_mail_at(tx: Transaction, ways: Collection[Way] = WAYS) -> datetime | None:
    """When there is something to do next for one of these ways, or something may be left."""
    if is_paused(tx):
        return None
    of_ways = [NEXT.format(source=WHICH[way][0], which=WHICH[way][1]) for way in ways]
    asked = (*of_ways, NEXT_LEFT)
    rows = [row for sql in asked if (row := tx.one(sql)) is not None]
    return min((moment(row[0]) for row in rows if row[0] is not None), default=None)


def renew_mail(tx: Transaction, jobs: Sequence[OutboxJob], until: datetime) -> None:
    """Keep what a worker has claimed and still works on."""
    for job in jobs:
        tx.run(
            f"""UPDATE outbox SET until = :until
                WHERE {IT} AND holder = :holder AND state <> 'done'""",
            **row_of(job),
            holder=job.holder,
            until=seconds(until),
        )


def begin_handing_over(tx: Transaction, job: OutboxJob, accepted: Sequence[str]) -> bool:
    """Write down that the mail itself goes out now; False if the claim was lost."""
    changed = tx.run(
        f"""UPDATE outbox SET state = 'handing_over', pending = :pending
            WHERE {IT} AND holder = :holder AND state = 'claimed'""",
        pending=dumps(list(accepted)),
        **row_of(job),
        holder=job.holder,
    )
    return changed > 0


def release_mail(tx: Transaction, job: OutboxJob, next_at: datetime | None = None) -> None:
    """Give a claim back before anything was handed over, as if it had not been taken."""
    if is_claimed(tx, job):
        for domain in () if job.is_scheduled else domains_of(job):
            tx.run(UNCOUNT, domain=domain)
        wait_again(tx, job.inbox, job.number, seconds(next_at or job.queued_at))
