"""Mail that nobody takes: whoever could is not there, or lacks the login for it."""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.model.message import Recipient
from postroom.model.outbox import GIVE_UP_AFTER, OutboxJob
from postroom.model.sending import OPEN
from postroom.store.sql.outbox import IT, copy_to_sent, is_claimed, is_paused, row_of, wait_again
from postroom.store.sql.outbox_claims import FREE, WHICH, release_mail
from postroom.store.sql.outcomes import ABOUT, set_recipients
from postroom.store.sql.values import from_text, seconds
from postroom.store.transaction import Transaction

SLACK = timedelta(hours=4)
"""So much longer we wait for whoever has tried it before: a last attempt is theirs."""

TOLD_AFTER = timedelta(minutes=1)
"""So long others may take who have the login, before anybody is told that nobody has."""

_AT_ONCE = 200
LEFT = """
    SELECT o.inbox, o.message, o.tried_since FROM {source}
     WHERE o.state = 'waiting' AND {which} AND o.next_at <= :now
       AND (o.tried_since IS NULL OR (o.attempts = 0 AND o.tried_since <= :long)
            OR o.tried_since <= :longer)
     ORDER BY o.next_at, o.message LIMIT :limit
"""
WAITS = f"UPDATE outbox SET tried_since = coalesce(tried_since, :now) WHERE {IT}"


def leave_unrelayed(tx: Transaction, why: str, now: datetime) -> dict[str, int]:
    """Say of mail for the relay that nobody has one; who gave up waiting for how many recipients.

    It is there for whoever comes with a relay as if nobody had looked, until it is given up.
    """
    if is_paused(tx):
        return {}
    source, which = WHICH["relay"]
    long = seconds(now - GIVE_UP_AFTER)
    times = {"now": seconds(now), "long": long, "longer": seconds(now - GIVE_UP_AFTER - SLACK)}
    rows = tx.all(LEFT.format(source=source, which=which), **times, limit=_AT_ONCE)
    given_up: dict[str, int] = {}
    for inbox, number, since in rows:
        if not tx.claimable(FREE, "o", inbox=inbox, message=number):
            continue
        if since is None:
            _tell(tx, inbox, number, "queued", why, now)
            tx.run(WAITS, now=seconds(now), inbox=inbox, message=number)
        else:
            given_up |= _give_up(tx, inbox, number, why, now)
    return given_up


def leave_mail(
    tx: Transaction, job: OutboxJob, why: str, *, now: datetime, next_at: datetime
) -> dict[str, int]:
    """Give a claim back to those who have the login, or give up if nobody had it for so long.

    Once it was tried somebody has it, and what the provider said is the reason why it waits.
    """
    if not is_claimed(tx, job):
        return {}
    waited = now - (job.tried_since or now)
    release_mail(tx, job, next_at)
    if waited >= GIVE_UP_AFTER + (SLACK if job.attempts else timedelta()):
        return _give_up(tx, job.inbox, job.number, why, now)
    tx.run(WAITS, now=seconds(now), **row_of(job))
    if waited >= TOLD_AFTER and not job.attempts:
        _tell(tx, job.inbox, job.number, "queued", why, now)
    return {}


def _give_up(tx: Transaction, inbox: int, number: int, why: str, now: datetime) -> dict[str, int]:
    detail = f"given up after 48 hours: {why}"
    count = _tell(tx, inbox, number, "bounced", detail, now)
    copy_to_sent(tx, inbox, number, now)
    wait_again(tx, inbox, number, seconds(now))
    about = tx.one(ABOUT, inbox=inbox, number=number)
    return {about[2]: count} if about else {}


def _tell(tx: Transaction, inbox: int, number: int, status: str, why: str, now: datetime) -> int:
    """Say it of those who still wait, and were not told so before; of how many."""
    about = tx.one(ABOUT, inbox=inbox, number=number)
    recipients = from_text(about[3])["recipients"] if about else ()
    news = {
        r["address"]: Recipient(r["address"], status, why)
        for r in recipients
        if r["status"] in OPEN and (r["status"], r.get("detail")) != (status, why)
    }
    set_recipients(tx, inbox, number, news, now)
    return len(news)
