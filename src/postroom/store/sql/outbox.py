"""The outbox: mail that waits, claimed by one worker at a time, settled in one transaction.

A row says how far its message is: `waiting`; `claimed`, while a relay is being asked;
`handing_over`, when the mail itself may already be there; `done`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from postroom.errors import Conflict, NotFound, no_such
from postroom.model.inbox import Visible
from postroom.model.message import Recipient
from postroom.model.outbox import (
    Claimed,
    Envelope,
    OutboxJob,
    OutboxState,
)
from postroom.model.sending import AGAIN, NOT_OUT, OPEN, overall_status
from postroom.model.stored import NewMessage
from postroom.store.sql.adding import add_message
from postroom.store.sql.drafts import give_again, take_back
from postroom.store.sql.outcomes import ABOUT, set_recipients
from postroom.store.sql.pushes import keep_a_copy, take_copy_back
from postroom.store.sql.values import dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

UNKNOWN = (
    "it is not known whether the relay took it: the connection ended before it said so; ask the "
    "recipient, then retry it or leave it"
)
_BEYOND_S = int(timedelta(hours=12).total_seconds())
"""A retry that lies further ahead than any back-off was planned before the clock was set back."""

_SEEN_AFTER = timedelta(minutes=1)
"""So long it may take until a provider shows what it has sent."""

INSERT = """
    INSERT INTO outbox (message, inbox, state, status, attempts, queued_at, next_at, is_scheduled)
    VALUES (:message, :inbox, :state, :status, 0, :start, :start, :is_scheduled)
"""
STALE = """
    SELECT inbox, message, state, pending FROM outbox
     WHERE state IN ('claimed', 'handing_over') AND until <= :now
"""
DUE = """
    SELECT o.message, m.id, m.from_address, m.raw, m.details, o.attempts, o.queued_at,
           o.is_scheduled, i.account_id, o.inbox
      FROM outbox o JOIN messages m ON +m.inbox = +o.inbox AND m.number = o.message
      JOIN inboxes i ON i.number = +m.inbox
     WHERE o.state = 'waiting'
       AND (o.next_at <= :now OR (o.is_scheduled = 0 AND o.next_at > :beyond)){only}
     ORDER BY o.next_at, o.message LIMIT :limit
"""
WITHOUT_RELAY = " AND (o.state <> 'waiting' OR o.is_scheduled = 1 OR i.account_id IS NOT NULL)"
"""What a worker can do that has no relay: who has one does the rest."""

ONLY_RELAY = " AND o.state = 'waiting' AND o.is_scheduled = 0 AND i.account_id IS NULL"
"""What a worker does that only lends its relay."""

FREE = """
    SELECT 1 FROM outbox o
     WHERE o.inbox = :inbox AND o.message = :message AND o.state = 'waiting'
"""
"""Locked one by one, each in its own inbox: over several machines no lock reaches all rows."""

DOMAIN_HOUR = "SELECT count(*), min(at) FROM domain_sends WHERE domain = :domain"
UNCOUNT = """
    DELETE FROM domain_sends
     WHERE number = (SELECT max(number) FROM domain_sends WHERE domain = :domain)
"""
HOUR_S = 3600
CLAIM = """
    UPDATE outbox SET state = 'claimed', holder = :holder, until = :until
     WHERE inbox = :inbox AND message = :message
"""
PAUSE = """
    INSERT INTO facts (name, value) VALUES ('outbox_paused', :value) ON CONFLICT (name) DO NOTHING
"""
NEXT = """
    SELECT min(CASE WHEN o.state = 'waiting' THEN o.next_at ELSE o.until END)
      FROM outbox o JOIN inboxes i ON i.number = +o.inbox
     WHERE o.state <> 'done'{only}
"""
FIND = """
    SELECT m.number, i.id, m.details, o.state, o.is_scheduled, m.inbox, o.draft_id,
           o.draft_revision, o.unknown FROM messages m
      JOIN inboxes i ON i.number = +m.inbox
      LEFT JOIN outbox o ON +o.inbox = +m.inbox AND o.message = m.number
     WHERE m.id = :id AND m.is_outbound = 1
"""
_IT = "inbox = :inbox AND message = :message"


def put_in_outbox(
    tx: Transaction,
    inbox: int,
    number: int,
    recipients: tuple[Recipient, ...],
    start: int,
    *,
    is_scheduled: bool,
) -> None:
    """Let a message that was just stored wait for a worker, or be seen if it is not to leave."""
    statuses = {recipient.status for recipient in recipients}
    if statuses.isdisjoint((*NOT_OUT, "captured")):
        return
    tx.run(
        INSERT,
        inbox=inbox,
        message=number,
        state="done" if statuses.isdisjoint(OPEN) else "waiting",
        status=overall_status(recipients),
        start=start,
        is_scheduled=int(is_scheduled),
    )
    tx.announce("outbox")


def claim_mail(
    tx: Transaction,
    holder: str,
    *,
    now: datetime,
    until: datetime,
    limit: int,
    most_per_domain: int,
    relays: bool = True,
    only_relays: bool = False,
    active: Sequence[OutboxJob] = (),
) -> Claimed:
    """Take over what is due, and what is left behind: nobody works on it, not even we."""
    renew_mail(tx, active, until)
    lost: dict[str, int] = {}
    for inbox, number, state, pending in tx.all(STALE, now=seconds(now)):
        lost |= _abandon(tx, (inbox, number), state, pending, now)
    if is_paused(tx):
        return Claimed((), lost)
    only = _only(relays=relays, only_relays=only_relays)
    due = tx.all(
        DUE.format(only=only), now=seconds(now), beyond=seconds(now) + _BEYOND_S, limit=limit
    )
    found = [_job(row, holder) for row in due]
    jobs = [job for job in found if tx.claimable(FREE, "o", **_of(job))]
    taken = [job for job in jobs if job.is_scheduled or _has_room(tx, job, now, most_per_domain)]
    for job in taken:
        tx.run(CLAIM, **_of(job), holder=holder, until=seconds(until))
    return Claimed(tuple(taken), lost)


def _only(*, relays: bool, only_relays: bool) -> str:
    if only_relays:
        return ONLY_RELAY
    return "" if relays else WITHOUT_RELAY


def _has_room(tx: Transaction, job: OutboxJob, now: datetime, most: int) -> bool:
    """Count a mail for each of its domains, or let it wait until the fullest has room again."""
    domains = _domains(job)
    since = seconds(now) - HOUR_S
    tx.run("DELETE FROM domain_sends WHERE at <= :since", since=since)
    rows = [tx.one(DOMAIN_HOUR, domain=domain) for domain in domains]
    full = [int(row[1]) for row in rows if row is not None and row[0] >= most]
    if full:
        tx.run(
            f"UPDATE outbox SET next_at = :at WHERE {_IT}",
            at=max(full) + HOUR_S,
            **_of(job),
        )
        return False
    for domain in domains:
        tx.run("INSERT INTO domain_sends (domain, at) VALUES (:d, :at)", d=domain, at=seconds(now))
    return True


def _domains(job: OutboxJob) -> set[str]:
    return {address.rpartition("@")[2].lower() for address in job.envelope.recipients}


def _of(job: OutboxJob) -> dict[str, object]:
    return {"inbox": job.inbox, "message": job.number}


def _abandon(
    tx: Transaction, at: tuple[int, int], state: str, pending: str | None, now: datetime
) -> dict[str, int]:
    """A worker died: what it only asked for waits again; of which message how many are unknown."""
    addresses = from_text(pending or "[]") if state == "handing_over" else []
    lost = {address: Recipient(address, "unknown", UNKNOWN) for address in addresses}
    set_recipients(tx, *at, lost, now)
    _keep_a_copy(tx, *at, now + _SEEN_AFTER)
    _wait_again(tx, *at, seconds(now))
    about = tx.one(ABOUT, inbox=at[0], number=at[1]) if lost else None
    return {about[2]: len(lost)} if about else {}


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
    )


def next_mail_at(
    tx: Transaction, *, relays: bool = True, only_relays: bool = False
) -> datetime | None:
    """When there is something to do next."""
    only = _only(relays=relays, only_relays=only_relays)
    row = None if is_paused(tx) else tx.one(NEXT.format(only=only))
    return moment(row[0]) if row and row[0] is not None else None


def renew_mail(tx: Transaction, jobs: Sequence[OutboxJob], until: datetime) -> None:
    """Keep what a worker has claimed and still works on."""
    for job in jobs:
        tx.run(
            f"""UPDATE outbox SET until = :until
                WHERE {_IT} AND holder = :holder AND state <> 'done'""",
            **_of(job),
            holder=job.holder,
            until=seconds(until),
        )


def begin_handing_over(tx: Transaction, job: OutboxJob, accepted: Sequence[str]) -> bool:
    """Write down that the mail itself goes out now; False if the claim was lost."""
    changed = tx.run(
        f"""UPDATE outbox SET state = 'handing_over', pending = :pending
            WHERE {_IT} AND holder = :holder AND state = 'claimed'""",
        pending=dumps(list(accepted)),
        **_of(job),
        holder=job.holder,
    )
    return changed > 0


def release_mail(tx: Transaction, job: OutboxJob, next_at: datetime | None = None) -> None:
    """Give a claim back before anything was handed over, as if it had not been taken."""
    if _is_claimed(tx, job):
        for domain in () if job.is_scheduled else _domains(job):
            tx.run(UNCOUNT, domain=domain)
        _wait_again(tx, job.inbox, job.number, seconds(next_at or job.queued_at))


def _is_claimed(tx: Transaction, job: OutboxJob) -> bool:
    row = tx.one(
        f"SELECT 1 FROM outbox WHERE {_IT} AND holder = :h AND state = 'claimed'",
        **_of(job),
        h=job.holder,
    )
    return row is not None


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
    row = tx.one(f"SELECT holder FROM outbox WHERE {_IT}", **_of(job))
    if row is None:
        return
    if row[0] != job.holder:
        recipients = {a: r for a, r in recipients.items() if r.status in ("sent", "failed")}
    set_recipients(tx, job.inbox, job.number, recipients, now)
    _keep_a_copy(tx, job.inbox, job.number, next_at)
    tx.run(f"UPDATE outbox SET attempts = attempts + 1 WHERE {_IT}", **_of(job))
    if row[0] == job.holder:
        _wait_again(tx, job.inbox, job.number, seconds(next_at))


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
    if not _is_claimed(tx, job):
        return False
    for copy in copies:
        add_message(tx, copy)
    set_recipients(tx, job.inbox, job.number, recipients, now)
    _keep_a_copy(tx, job.inbox, job.number, now)
    tx.run(f"UPDATE outbox SET is_scheduled = 0 WHERE {_IT}", **_of(job))
    _wait_again(tx, job.inbox, job.number, seconds(now))
    return True


def _keep_a_copy(tx: Transaction, inbox: int, number: int, at: datetime) -> None:
    """Have the copy in Sent made that nobody else makes, as far as that is certain by now."""
    row = tx.one(ABOUT, inbox=inbox, number=number)
    if row is not None:
        statuses = {r["status"] for r in from_text(row[3])["recipients"]}
        keep_a_copy(tx, inbox, number, row[2], statuses=statuses, at=seconds(at))


def _wait_again(tx: Transaction, inbox: int, number: int, next_at: int) -> None:
    """Let a message wait until *next_at*, or be done if nobody is left to send it to."""
    row = tx.one(ABOUT, inbox=inbox, number=number)
    recipients = from_text(row[3])["recipients"] if row else []
    is_open = any(recipient["status"] in OPEN for recipient in recipients)
    tx.run(
        f"""UPDATE outbox SET state = :state, next_at = :next_at, holder = NULL, until = NULL,
                  pending = NULL WHERE {_IT}""",
        state="waiting" if is_open else "done",
        next_at=next_at,
        inbox=inbox,
        message=number,
    )
    if is_open:
        tx.announce("outbox")


def is_paused(tx: Transaction) -> bool:
    """Whether nothing is to be handed over for now."""
    return tx.one("SELECT 1 FROM facts WHERE name = 'outbox_paused'") is not None


def pause_outbox(tx: Transaction, *, paused: bool) -> OutboxState:
    """Hold all mail back, or let it go again."""
    if paused:
        tx.run(PAUSE, value=b"\1")
    else:
        tx.run("DELETE FROM facts WHERE name = 'outbox_paused'")
    tx.announce("outbox")
    return outbox_state(tx)


def outbox_state(tx: Transaction) -> OutboxState:
    """Whether the outbox is paused, and how many messages wait in it."""
    row = tx.one("SELECT count(*) FROM outbox WHERE state <> 'done'")
    return OutboxState(is_paused(tx), int(row[0]) if row else 0)


def retry_mail(tx: Transaction, message_id: str, visible: Visible, now: datetime) -> None:
    """Queue again whoever did not get the message, or hurry those who wait.

    Where each of them is reached is found out anew, as for a mail whose time has come.

    Raises:
        NotFound: there is no such sent message.
        Conflict: there is nobody left to send it to, it is being handed over right now, or it was
            cancelled and its draft changed or sent since.
    """
    row = _found(tx, message_id, visible)
    again = [r for r in _recipients(row) if r.status in AGAIN]
    if not again:
        raise Conflict(f"everyone has got {message_id} already")
    if row[3] in ("claimed", "handing_over"):
        raise Conflict(f"{message_id} is being handed over right now")
    inbox, number = row[5], row[0]
    if row[6] is not None:
        give_again(tx, row[6], row[7], message_id, now)
    changes = {r.address: Recipient(r.address, "queued") for r in again}
    set_recipients(tx, inbox, number, changes, now)
    statuses = {r.status for r in _recipients(row)}
    take_copy_back(tx, inbox, number, message_id, statuses=statuses)
    tx.run(f"DELETE FROM outbox WHERE {_IT}", inbox=inbox, message=number)
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
    _keep_a_copy(tx, row[5], row[0], now)
    _wait_again(tx, row[5], row[0], seconds(now))
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
    tx.run(f"UPDATE outbox SET {changes} WHERE {_IT}", inbox=row[5], message=row[0], **values)


def _found(tx: Transaction, message_id: str, visible: Visible) -> Row:
    row = tx.one(FIND, id=message_id)
    if row is None or (visible is not None and row[1] not in visible):
        raise NotFound(no_such("sent message", message_id))
    return row


def _recipients(row: Row) -> list[Recipient]:
    return [Recipient(**r) for r in from_text(row[2])["recipients"] or ()]
