"""Plans: kept until they end, and shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from postroom.errors import NotFound
from postroom.model.facts import State
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.model.rule import Act, Plan, PlanItem
from postroom.store.sql.values import dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

_AT_ONCE = 500
_COLUMNS = """number, id, rule, name, created_at, expires_at, state, total, kept, counts, warnings,
    max_messages, can_undo, inboxes"""
_ITEM = "message, inbox, subject, sender, date, before, after, acts, why"
INSERT_PLAN = """
    INSERT INTO plans (id, rule, name, state, total, kept, counts, warnings, max_messages,
                       can_undo, inboxes, created_at, expires_at)
    VALUES (:id, :rule, :name, 'open', :total, :kept, :counts, :warnings, :max_messages,
            :can_undo, :inboxes, :created_at, :expires_at) RETURNING number
"""
INSERT_ITEM = f"""
    INSERT INTO plan_items (plan, position, {_ITEM})
    VALUES (:plan, :position, :message, :inbox, :subject, :sender, :date, :before, :after, :acts,
            :why)
"""


def save_plan(tx: Transaction, plan: Plan, items: Sequence[PlanItem]) -> None:
    """Keep a plan, and forget those whose time is over."""
    _forget(tx, seconds(plan.created_at))
    row = tx.one(
        INSERT_PLAN,
        id=plan.id,
        rule=plan.rule_id,
        name=plan.name,
        total=plan.total,
        kept=plan.kept,
        counts=dumps(plan.actions_by_type),
        warnings=dumps(plan.warnings),
        max_messages=plan.max_messages,
        can_undo=int(plan.can_undo),
        inboxes=None if plan.inboxes is None else dumps(plan.inboxes),
        created_at=seconds(plan.created_at),
        expires_at=seconds(plan.expires_at),
    )
    assert row is not None
    tx.many(INSERT_ITEM, [_item_values(row[0], n, item) for n, item in enumerate(items)])


def _forget(tx: Transaction, now: int) -> None:
    tx.put(
        """DELETE FROM plan_items WHERE plan IN
               (SELECT number FROM plans WHERE expires_at <= :now)""",
        now=now,
    )
    tx.put("DELETE FROM plans WHERE expires_at <= :now", now=now)


def _item_values(plan: int, position: int, item: PlanItem) -> dict[str, object]:
    return {
        "plan": plan,
        "position": position,
        "message": item.message_id,
        "inbox": item.inbox_id,
        "subject": item.subject,
        "sender": item.sender,
        "date": seconds(item.date),
        "before": dumps(item.before),
        "after": dumps(item.after),
        "acts": dumps(item.actions),
        "why": dumps(item.why),
    }


def get_plan(tx: Transaction, plan_id: str, visible: Visible) -> Plan:
    """One plan. Raises NotFound."""
    return kept_plan(tx, plan_id, visible).plan


@dataclass(frozen=True, slots=True)
class Kept:
    """A plan, and its row."""

    number: int
    plan: Plan


def kept_plan(tx: Transaction, plan_id: str, visible: Visible) -> Kept:
    """One plan, with its row. Raises NotFound."""
    row = tx.one(f"SELECT {_COLUMNS} FROM plans WHERE id = :id", id=plan_id)
    plan = None if row is None else _plan(row)
    if row is None or plan is None or not _is_seen(plan, visible):
        raise NotFound(f"no plan {plan_id}, or its time is over; run_rule_plan makes a new one")
    return Kept(row[0], plan)


def _is_seen(plan: Plan, visible: Visible) -> bool:
    return visible is None or (plan.inboxes is not None and visible.issuperset(plan.inboxes))


def _plan(row: Row) -> Plan:
    return Plan(
        id=row[1],
        rule_id=row[2],
        name=row[3],
        created_at=moment(row[4]),
        expires_at=moment(row[5]),
        state=row[6],
        total=row[7],
        kept=row[8],
        actions_by_type=from_text(row[9]),
        warnings=tuple(from_text(row[10])),
        max_messages=row[11],
        can_undo=bool(row[12]),
        inboxes=None if row[13] is None else tuple(from_text(row[13])),
    )


def plan_items(
    tx: Transaction, plan_id: str, visible: Visible, page: Slice
) -> tuple[Plan, Found[PlanItem]]:
    """A plan and one page of its messages, newest first. Raises NotFound."""
    kept = kept_plan(tx, plan_id, visible)
    start = int(page.after[0]) if page.after else page.offset
    items = _items(tx, kept.number, start, page.limit)
    end = start + len(items)
    more = (end,) if items and end < kept.plan.kept else None
    return kept.plan, Found(tuple(items), kept.plan.total, start, more)


def _items(tx: Transaction, plan: int, start: int, limit: int) -> list[PlanItem]:
    rows = tx.all(
        f"""SELECT {_ITEM} FROM plan_items WHERE plan = :plan AND position >= :start
             ORDER BY position LIMIT :limit""",
        plan=plan,
        start=start,
        limit=limit,
    )
    return [_item(row) for row in rows]


def every_item(tx: Transaction, kept: Kept) -> Iterator[PlanItem]:
    """All messages of a plan, in its order."""
    for start in range(0, kept.plan.kept, _AT_ONCE):
        yield from _items(tx, kept.number, start, _AT_ONCE)


def _item(row: Row) -> PlanItem:
    return PlanItem(
        message_id=row[0],
        inbox_id=row[1],
        subject=row[2],
        sender=row[3],
        date=moment(row[4]),
        before=_state(from_text(row[5])),
        after=_state(from_text(row[6])),
        actions=tuple(Act(*act) for act in from_text(row[7])),
        why=tuple(from_text(row[8])),
    )


def _state(values: dict[str, list[str]]) -> State:
    return State(**{name: tuple(value) for name, value in values.items()})
