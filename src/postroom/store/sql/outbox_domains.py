"""How much mail goes to one domain in an hour."""

from __future__ import annotations

from datetime import datetime

from postroom.model.outbox import OutboxJob
from postroom.store.sql.outbox import IT, row_of
from postroom.store.sql.values import seconds
from postroom.store.transaction import Transaction

DOMAIN_HOUR = "SELECT count(*), min(at) FROM domain_sends WHERE domain = :domain"
UNCOUNT = """
    DELETE FROM domain_sends
     WHERE number = (SELECT max(number) FROM domain_sends WHERE domain = :domain)
"""
HOUR_S = 3600


def has_room(tx: Transaction, job: OutboxJob, now: datetime, most: int) -> bool:
    """Count a mail for each of its domains, or let it wait until the fullest has room again."""
    domains = domains_of(job)
    since = seconds(now) - HOUR_S
    tx.run("DELETE FROM domain_sends WHERE at <= :since", since=since)
    rows = [tx.one(DOMAIN_HOUR, domain=domain) for domain in domains]
    full = [int(row[1]) for row in rows if row is not None and row[0] >= most]
    if full:
        tx.run(
            f"UPDATE outbox SET next_at = :at WHERE {IT}",
            at=max(full) + HOUR_S,
            **row_of(job),
        )
        return False
    for domain in domains:
        tx.run("INSERT INTO domain_sends (domain, at) VALUES (:d, :at)", d=domain, at=seconds(now))
    return True


def domains_of(job: OutboxJob) -> set[str]:
    """The domains that a mail goes to."""
    return {address.rpartition("@")[2].lower() for address in job.envelope.recipients}
