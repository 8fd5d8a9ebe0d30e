"""Jobs of rules: forwards and replies that a worker sends after the transaction of their rule."""

from __future__ import annotations

from datetime import datetime

from postroom.model.rule import Action, RuleJob
from postroom.store.sql.audit import rule_known_in
from postroom.store.sql.events.events import About, add_event
from postroom.store.sql.rules.rules import ABOUT, known_in
from postroom.store.sql.values import from_text, moment_or_none, scalar, seconds
from postroom.store.transaction import Row, Transaction

DUE = """
    SELECT e.inbox, e.number, e.id, e.rule, e.name, e.message, i.id, e.action, e.attempts,
           e.authority, e.authors
      FROM rule_jobs e JOIN inboxes i ON i.number = e.inbox
     WHERE e.state = 'waiting' AND e.next_at <= :now AND (e.holder IS NULL OR e.until <= :now)
     ORDER BY e.number LIMIT :limit
"""
NEXT = """
    SELECT min(CASE WHEN holder IS NULL THEN next_at ELSE until END) FROM rule_jobs
     WHERE state = 'waiting'
"""
_ROW_KEY = "inbox = :inbox AND number = :n"
FREE = f"""
    SELECT 1 FROM rule_jobs e
     WHERE {_ROW_KEY} AND state = 'waiting' AND (holder IS NULL OR until <= :now)
"""
"""Rows are locked one by one, by inbox, because a lock cannot span several machines."""


def claim_rule_jobs(
    tx: Transaction, holder: str, *, now: datetime, until: datetime, limit: int
) -> list[RuleJob]:
    """Claim due rule jobs, and those whose lease has expired."""
    due = tx.all(DUE, now=seconds(now), limit=limit)
    rows = [row for row in due if tx.claimable(FREE, "e", inbox=row[0], n=row[1], now=seconds(now))]
    for row in rows:
        tx.run(
            f"UPDATE rule_jobs SET holder = :holder, until = :until WHERE {_ROW_KEY}",
            holder=holder,
            until=seconds(until),
            inbox=row[0],
            n=row[1],
        )
    return [_rule_job(row, holder) for row in rows]


def _rule_job(row: Row, holder: str) -> RuleJob:
    inbox, number, rule_job_id, rule, name, message, inbox_id, act, attempts, authority = row[:10]
    return RuleJob(
        inbox=inbox,
        number=number,
        id=rule_job_id,
        rule_id=rule,
        rule_name=name,
        message_id=message,
        inbox_id=inbox_id,
        act=Action(*from_text(act)),
        attempts=attempts,
        holder=holder,
        authority=authority,
        authors=tuple(from_text(row[10])),
    )


def next_rule_job_at(tx: Transaction) -> datetime | None:
    """When the next rule job is due."""
    return moment_or_none(scalar(tx, NEXT))


def settle_rule_job(
    tx: Transaction,
    job: RuleJob,
    *,
    now: datetime,
    failed: str | None,
    next_at: datetime | None,
) -> None:
    """Record the outcome of a rule job: done, to be retried, or abandoned with an event."""
    if failed is not None and next_at is not None:
        tx.run(
            f"""UPDATE rule_jobs SET attempts = attempts + 1, next_at = :at, holder = NULL,
                      until = NULL WHERE {_ROW_KEY} AND holder = :holder""",
            at=seconds(next_at),
            inbox=job.inbox,
            n=job.number,
            holder=job.holder,
        )
        return
    deleted = tx.run(
        f"DELETE FROM rule_jobs WHERE {_ROW_KEY} AND holder = :holder",
        inbox=job.inbox,
        n=job.number,
        holder=job.holder,
    )
    row = tx.one(ABOUT, id=job.message_id)
    if failed is not None and deleted and row is not None:
        data = {"rule_id": job.rule_id, "rule": job.rule_name, "detail": failed[:500]}
        known = known_in(rule_known_in(tx, job.rule_id))
        add_event(tx, "rule.failed", now, About(*row), {**data, **known})


def cancel_rule_jobs(tx: Transaction, plan_id: str, message_id: str) -> list[Action]:
    """Delete the rule jobs of a message that no worker has claimed, and return their actions."""
    rows = tx.all(
        """DELETE FROM rule_jobs WHERE plan = :plan AND message = :message AND state = 'waiting'
              AND holder IS NULL RETURNING action""",
        plan=plan_id,
        message=message_id,
    )
    return [Action(*from_text(row[0])) for row in rows]
