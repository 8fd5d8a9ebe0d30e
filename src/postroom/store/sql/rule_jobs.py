"""Jobs of rules, which a worker does after the transaction of their rule; what rules have done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from postroom.errors import NotFound
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.model.rule import Action, Plan, PlanState, RuleDay, RuleJob, RulePlan
from postroom.store.sql.audit import ARRIVED, rule_visible_inboxes
from postroom.store.sql.events import MessageRef, add_event
from postroom.store.sql.rule_plans import COLUMNS, UNDO_PERIOD, plan_in, stored_plan
from postroom.store.sql.rules import ABOUT, visibility_detail, visible_rules
from postroom.store.sql.statements import (
    any_of,
    from_text,
    moment,
    moment_or_none,
    page_of,
    scalar,
    seconds,
    update,
)
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
        row_key = {"inbox": row[0], "number": row[1]}
        update(tx, "rule_jobs", row_key, holder=holder, until=seconds(until))
    return [_rule_job(row, holder) for row in rows]


def _rule_job(row: Row, holder: str) -> RuleJob:
    inbox, number, job_id, rule, name, message, inbox_id, action, attempts, authority = row[:10]
    return RuleJob(
        inbox=inbox,
        number=number,
        id=job_id,
        rule_id=rule,
        rule_name=name,
        message_id=message,
        inbox_id=inbox_id,
        action=Action(*from_text(action)),
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
    claim = {"inbox": job.inbox, "n": job.number, "holder": job.holder}
    if failed is not None and next_at is not None:
        tx.run(
            f"""UPDATE rule_jobs SET attempts = attempts + 1, next_at = :at, holder = NULL,
                      until = NULL WHERE {_ROW_KEY} AND holder = :holder""",
            **claim,
            at=seconds(next_at),
        )
        return
    deleted = tx.run(f"DELETE FROM rule_jobs WHERE {_ROW_KEY} AND holder = :holder", **claim)
    row = tx.one(ABOUT, id=job.message_id)
    if failed is not None and deleted and row is not None:
        data = {"rule_id": job.rule_id, "rule": job.rule_name, "detail": failed[:500]}
        known = visibility_detail(rule_visible_inboxes(tx, job.rule_id))
        add_event(tx, "rule.failed", now, MessageRef(*row), {**data, **known})


MAX_LISTED = 1_000
"""A list shows the newest plans; they expire after a day, or 30 days once they were applied."""

_MAX_DAYS = 1_000
# The literals are those of the partial indexes `plans_of_rules` and `audit_by_rule`. A change of
# messages that no rule makes is a plan without authors.
PLANS = f"""
    SELECT {COLUMNS} FROM plans WHERE authors <> '[]' AND expires_at > :now
     ORDER BY number DESC LIMIT :limit
"""
PLANS_IN_STATE = PLANS.replace(" ORDER", " AND state = :state ORDER", 1)
APPLIED_BY = """
    SELECT a.actor, a.via FROM audit a
     WHERE a.target = (SELECT message FROM plan_items
                        WHERE plan = :number AND actions <> '[]' ORDER BY position LIMIT 1)
       AND a.action = 'apply_rule_plan' AND a.details LIKE :details
     ORDER BY a.number LIMIT 1
"""
DAYS = f"""
    SELECT actor, count(DISTINCT target), max(at),
           sum(CASE WHEN details LIKE '%"failed":[%' THEN 1 ELSE 0 END)
      FROM audit WHERE action = '{ARRIVED}' AND actor {{among}} AND at >= :since
     GROUP BY actor, at / 86400 ORDER BY max(at) DESC, actor LIMIT :limit
"""


def list_plans(
    tx: Transaction,
    visible: Visible,
    page: Slice,
    *,
    now: datetime,
    rule_id: str | None = None,
    state: PlanState | None = None,
) -> Found[RulePlan]:
    """One page of the newest plans of rules that a caller sees."""
    sql, given = (PLANS, {}) if state is None else (PLANS_IN_STATE, {"state": state})
    rows = tx.all(sql, now=seconds(now), limit=MAX_LISTED, **given)
    known = [row for row in rows if visible.covers(plan_in(row).visible_inboxes)]
    found = page_of([row for row in known if rule_id in (None, row[2])], page)
    shown = tuple(_rule_plan(tx, row[0], plan_in(row)) for row in found.rows)
    return Found(shown, found.total, found.offset, found.next)


def get_plan(tx: Transaction, plan_id: str, visible: Visible) -> RulePlan:
    """One plan, with who applied it. Raises NotFound."""
    number, plan = stored_plan(tx, plan_id, visible)
    if not plan.authors:
        raise NotFound(f"{plan_id} is not a plan of a rule")
    return _rule_plan(tx, number, plan)


def _rule_plan(tx: Transaction, number: int, plan: Plan) -> RulePlan:
    is_open = plan.state == "open"
    # The text begins with the id; it has no character that LIKE treats specially but `_`.
    details = f'{{"plan_id":"{plan.id}"%'
    by: Row | None = None if is_open else tx.one(APPLIED_BY, number=number, details=details)
    shared = {name: getattr(plan, name) for name in RulePlan.__slots__ if hasattr(plan, name)}
    return RulePlan(
        **shared,
        applied_at=None if is_open else plan.expires_at - UNDO_PERIOD,
        applied_by=by[0] if by else None,
        via=by[1] if by else None,
    )


def rule_days(
    tx: Transaction, rule_ids: Sequence[str], visible: Visible, since: datetime
) -> list[RuleDay]:
    """What rules did with arriving mail on each day since then, newest first.

    A caller who sees a rule sees everything that it does.
    """
    seen = sorted({rule.id for rule in visible_rules(tx, visible)} & set(rule_ids))
    among, params = any_of("actor", seen)
    rows = tx.all(DAYS.format(among=among), since=seconds(since), limit=_MAX_DAYS, **params)
    return [RuleDay(actor, count, int(bad), moment(at)) for actor, count, at, bad in rows]
