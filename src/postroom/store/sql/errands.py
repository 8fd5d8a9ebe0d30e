"""Errands: what a rule does outside the house, written where it is decided and done later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from postroom.errors import MailError
from postroom.model.ids import random_id
from postroom.model.memory import DEFAULT_NAMESPACE, Author, Link, MemoryChange
from postroom.model.rule import Act, Errand, RuleEffect, shown_act
from postroom.store.sql.audit import note
from postroom.store.sql.events import About, add_event
from postroom.store.sql.memory_writing import put_memory
from postroom.store.sql.values import dumps, from_text, moment, seconds
from postroom.store.sql.webhooks import tell
from postroom.store.transaction import Row, Transaction

ARRIVED = "rule_applied"
"""What the audit log calls the work of a rule on a message that arrives."""

INSERT = """
    INSERT INTO errands (id, rule, name, plan, message, inbox, act, state, attempts, next_at)
    VALUES (:id, :rule, :name, :plan, :message, :inbox, :act, 'waiting', 0, :now)
"""
DUE = """
    SELECT e.inbox, e.number, e.id, e.rule, e.name, e.message, i.id, e.act, e.attempts
      FROM errands e JOIN inboxes i ON i.number = e.inbox
     WHERE e.state = 'waiting' AND e.next_at <= :now AND (e.holder IS NULL OR e.until <= :now)
     ORDER BY e.number LIMIT :limit
"""
NEXT = """
    SELECT min(CASE WHEN holder IS NULL THEN next_at ELSE until END) FROM errands
     WHERE state = 'waiting'
"""
ABOUT = """
    SELECT m.inbox, t.id, m.id
      FROM messages m JOIN threads t ON +t.inbox = +m.inbox AND t.number = m.thread
     WHERE m.id = :id
"""
BEYOND = frozenset({"webhook", "forward", "reply", "remember"})
"""What an act does that leaves the message itself alone."""
_IT = "inbox = :inbox AND number = :n"
FREE = f"""
    SELECT 1 FROM errands e
     WHERE {_IT} AND state = 'waiting' AND (holder IS NULL OR until <= :now)
"""
"""Locked one by one, each in its own inbox: over several machines no lock reaches all rows."""


def carry_out(
    tx: Transaction,
    effect: RuleEffect,
    about: About,
    now: datetime,
    *,
    plan_id: str | None = None,
) -> list[str]:
    """Do what leaves the message alone: tell webhooks, write errands. What failed, in words."""
    failed = list(effect.problems)
    for act in effect.actions:
        try:
            _reach(tx, effect, act, about, now, plan_id)
        except MailError as error:
            failed.append(str(error))
    for problem in failed:
        add_failure(tx, effect.rule_id, effect.rule_name, problem, about, now)
    return failed


def _reach(
    tx: Transaction,
    effect: RuleEffect,
    act: Act,
    about: About,
    now: datetime,
    plan_id: str | None,
) -> None:
    if act.type == "webhook":
        data: dict[str, object] = {"rule_id": effect.rule_id, "rule": effect.rule_name}
        event = add_event(tx, "rule.matched", now, about, data)
        tell(tx, act.value, event, about.inbox, now)
    elif act.type in ("forward", "reply"):
        tx.run(
            INSERT,
            id=random_id("ern"),
            rule=effect.rule_id,
            name=effect.rule_name,
            plan=plan_id,
            message=about.message_id,
            inbox=about.inbox,
            act=dumps(act),
            now=seconds(now),
        )
        tx.announce("errands")
    elif act.type == "remember":
        _remember(tx, act, about, now)


def _remember(tx: Transaction, act: Act, about: About, now: datetime) -> None:
    """Keep a memory; whoever reads it is told that it came from mail, and from which."""
    learnt = MemoryChange(
        DEFAULT_NAMESPACE,
        act.key,
        text=act.value,
        links=(Link("learnt_from", about.message_id),),
        at_most="mail",
    )
    put_memory(tx, learnt, Author(is_owner=False), now, is_new_allowed=True)


def add_failure(
    tx: Transaction, rule_id: str, name: str, detail: str, about: About, now: datetime
) -> None:
    """Tell whoever watches that a rule could not do what it should."""
    data: dict[str, object] = {"rule_id": rule_id, "rule": name, "detail": detail[:500]}
    add_event(tx, "rule.failed", now, about, data)


def rules_at_arrival(
    tx: Transaction, effects: Sequence[RuleEffect], about: About, inbox_id: str, now: datetime
) -> None:
    """Write down and carry out what rules do with a message that was stored just now."""
    for effect in effects:
        failed = carry_out(tx, effect, about, now)
        note(
            tx,
            at=now,
            actor=effect.rule_id,
            action=ARRIVED,
            target=about.message_id,
            inbox_id=inbox_id,
            details={
                "rule": effect.rule_name,
                "actions": [shown_act(act) for act in effect.actions],
                **({"failed": failed} if failed else {}),
            },
        )


def claim_errands(
    tx: Transaction, holder: str, *, now: datetime, until: datetime, limit: int
) -> list[Errand]:
    """Take what is due, and what a worker that is gone has left behind."""
    due = tx.all(DUE, now=seconds(now), limit=limit)
    rows = [row for row in due if tx.claimable(FREE, "e", inbox=row[0], n=row[1], now=seconds(now))]
    for row in rows:
        tx.run(
            f"UPDATE errands SET holder = :holder, until = :until WHERE {_IT}",
            holder=holder,
            until=seconds(until),
            inbox=row[0],
            n=row[1],
        )
    return [_errand(row, holder) for row in rows]


def _errand(row: Row, holder: str) -> Errand:
    inbox, number, errand_id, rule, name, message, inbox_id, act, attempts = row
    return Errand(
        inbox=inbox,
        number=number,
        id=errand_id,
        rule_id=rule,
        rule_name=name,
        message_id=message,
        inbox_id=inbox_id,
        act=Act(*from_text(act)),
        attempts=attempts,
        holder=holder,
    )


def next_errand_at(tx: Transaction) -> datetime | None:
    """When there is something to do next."""
    row = tx.one(NEXT)
    return moment(row[0]) if row and row[0] is not None else None


def settle_errand(
    tx: Transaction,
    errand: Errand,
    *,
    now: datetime,
    failed: str | None,
    next_at: datetime | None,
) -> None:
    """Write down how it went: done, to be tried again, or given up with an event."""
    if failed is not None and next_at is not None:
        tx.run(
            f"""UPDATE errands SET attempts = attempts + 1, next_at = :at, holder = NULL,
                      until = NULL WHERE {_IT} AND holder = :holder""",
            at=seconds(next_at),
            inbox=errand.inbox,
            n=errand.number,
            holder=errand.holder,
        )
        return
    gone = tx.run(
        f"DELETE FROM errands WHERE {_IT} AND holder = :holder",
        inbox=errand.inbox,
        n=errand.number,
        holder=errand.holder,
    )
    row = tx.one(ABOUT, id=errand.message_id)
    if failed is not None and gone and row is not None:
        add_failure(tx, errand.rule_id, errand.rule_name, failed, About(*row), now)


def cancel_errands(tx: Transaction, plan_id: str, message_id: str) -> list[Act]:
    """Take back what nobody has begun to do."""
    rows = tx.all(
        """DELETE FROM errands WHERE plan = :plan AND message = :message AND state = 'waiting'
              AND holder IS NULL RETURNING act""",
        plan=plan_id,
        message=message_id,
    )
    return [Act(*from_text(row[0])) for row in rows]
