"""Rule jobs: forwards and replies that a rule asks for, stored with the decision, run later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from postroom.errors import MailError
from postroom.model.key import AGENT, OWNER
from postroom.model.memory import DEFAULT_NAMESPACE, Author, Link, MemoryChange
from postroom.model.page import random_id
from postroom.model.rule import Action, RuleEffect, RuleJob
from postroom.model.view import EVERYTHING
from postroom.store.sql.audit import note_actions
from postroom.store.sql.events.events import About, add_event
from postroom.store.sql.events.rule_webhooks import Signer, insert_rule_delivery
from postroom.store.sql.memories.memory_writes import put_memory
from postroom.store.sql.values import dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

ARRIVED = "rule_applied"
"""The audit action of a rule that is applied to an arriving message."""

INSERT = """
    INSERT INTO rule_jobs (
        id, rule, name, plan, message, inbox, action, state, attempts, next_at, authority
    ) VALUES (:id, :rule, :name, :plan, :message, :inbox, :action, 'waiting', 0, :now, :authority)
"""
DUE = """
    SELECT e.inbox, e.number, e.id, e.rule, e.name, e.message, i.id, e.action, e.attempts,
           e.authority
      FROM rule_jobs e JOIN inboxes i ON i.number = e.inbox
     WHERE e.state = 'waiting' AND e.next_at <= :now AND (e.holder IS NULL OR e.until <= :now)
     ORDER BY e.number LIMIT :limit
"""
NEXT = """
    SELECT min(CASE WHEN holder IS NULL THEN next_at ELSE until END) FROM rule_jobs
     WHERE state = 'waiting'
"""
ABOUT = """
    SELECT m.inbox, t.id, m.id
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.id = :id
"""
SIDE_EFFECTS = frozenset({"webhook", "forward", "reply", "remember"})
"""The actions that do not change the message."""
_ROW_KEY = "inbox = :inbox AND number = :n"
FREE = f"""
    SELECT 1 FROM rule_jobs e
     WHERE {_ROW_KEY} AND state = 'waiting' AND (holder IS NULL OR until <= :now)
"""
"""Rows are locked one by one, by inbox, because a lock cannot span several machines."""


def run_side_effects(
    tx: Transaction,
    effect: RuleEffect,
    about: About,
    now: datetime,
    *,
    plan_id: str | None = None,
) -> list[str]:
    """Run the actions that do not change the message, and return descriptions of the failures."""
    failed = list(effect.problems)
    for act in effect.actions:
        try:
            _run_side_effect(tx, effect, act, about, now, plan_id)
        except MailError as error:
            failed.append(str(error))
    for problem in failed:
        add_failure(tx, effect.rule_id, effect.rule_name, problem, about, now)
    return failed


def _run_side_effect(
    tx: Transaction,
    effect: RuleEffect,
    act: Action,
    about: About,
    now: datetime,
    plan_id: str | None,
) -> None:
    if act.type == "webhook":
        data: dict[str, object] = {"rule_id": effect.rule_id, "rule": effect.rule_name}
        event = add_event(tx, "rule.matched", now, about, data)
        # An agent without a key acts for the owner, also for a URL that both use.
        authority = OWNER.key_id if effect.authority == AGENT.key_id else effect.authority
        signer = Signer(authority, effect.caller.inboxes)
        insert_rule_delivery(tx, act.value, event, about.inbox, signer, now)
    elif act.type in ("forward", "reply"):
        tx.run(
            INSERT,
            id=random_id("ern"),
            rule=effect.rule_id,
            name=effect.rule_name,
            plan=plan_id,
            message=about.message_id,
            inbox=about.inbox,
            action=dumps(act),
            now=seconds(now),
            authority=effect.authority,
        )
        tx.announce("rule_jobs")
    elif act.type == "remember":
        _store_memory(tx, act, about, now)


def _store_memory(tx: Transaction, act: Action, about: About, now: datetime) -> None:
    """Store a memory with trust `mail` and a link to its message."""
    change = MemoryChange(
        DEFAULT_NAMESPACE,
        act.key,
        text=act.value,
        links=(Link("learnt_from", about.message_id),),
        at_most="mail",
    )
    author = Author(is_owner=False, visible=EVERYTHING, namespaces=EVERYTHING)
    put_memory(tx, change, author, now, is_new_allowed=True)


def add_failure(
    tx: Transaction, rule_id: str, name: str, detail: str, about: About, now: datetime
) -> None:
    """Insert a `rule.failed` event."""
    data: dict[str, object] = {"rule_id": rule_id, "rule": name, "detail": detail[:500]}
    add_event(tx, "rule.failed", now, about, data)


def apply_rule_effects(
    tx: Transaction, effects: Sequence[RuleEffect], about: About, inbox_id: str, now: datetime
) -> None:
    """Run and audit the effects of rules on a message that was just stored."""
    for effect in effects:
        failed = run_side_effects(tx, effect, about, now)
        note_actions(
            tx,
            effect.actions,
            at=now,
            actor=effect.rule_id,
            action=ARRIVED,
            target=about.message_id,
            inbox_id=inbox_id,
            details={"rule": effect.rule_name},
            failed=failed,
        )


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
    inbox, number, rule_job_id, rule, name, message, inbox_id, act, attempts, authority = row
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
    )


def next_rule_job_at(tx: Transaction) -> datetime | None:
    """When the next rule job is due."""
    row = tx.one(NEXT)
    return moment(row[0]) if row and row[0] is not None else None


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
        add_failure(tx, job.rule_id, job.rule_name, failed, About(*row), now)


def cancel_rule_jobs(tx: Transaction, plan_id: str, message_id: str) -> list[Action]:
    """Delete the rule jobs of a message that no worker has claimed, and return their actions."""
    rows = tx.all(
        """DELETE FROM rule_jobs WHERE plan = :plan AND message = :message AND state = 'waiting'
              AND holder IS NULL RETURNING action""",
        plan=plan_id,
        message=message_id,
    )
    return [Action(*from_text(row[0])) for row in rows]
