"""Plans: stored until they expire, and listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from postroom.errors import NotFound
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.model.rule import Action, Plan, PlanItem, State
from postroom.store.sql.values import dumps, from_text, moment, seconds, stored_view, view_in
from postroom.store.transaction import Row, Transaction

_BATCH_SIZE = 500
_COLUMNS = """number, id, rule, name, created_at, expires_at, state, total, item_count, counts,
    warnings, max_messages, can_undo, inboxes, visible_inboxes"""
_ITEM = "message, inbox, subject, sender, date, before, after, actions, reasons"
INSERT_PLAN = """
    INSERT INTO plans (id, rule, name, state, total, item_count, counts, warnings, max_messages,
                       can_undo, inboxes, created_at, expires_at, visible_inboxes)
    VALUES (:id, :rule, :name, 'open', :total, :item_count, :counts, :warnings, :max_messages,
            :can_undo, :inboxes, :created_at, :expires_at,
            (SELECT visible_inboxes FROM rules WHERE id = :rule)) RETURNING number
"""
"""A rule that is hidden because of a removed inbox hides its plans too."""

INSERT_ITEM = f"""
    INSERT INTO plan_items (plan, position, {_ITEM})
    VALUES (:plan, :position, :message, :inbox, :subject, :sender, :date, :before, :after, :actions,
            :reasons)
"""


def save_plan(tx: Transaction, plan: Plan, items: Sequence[PlanItem]) -> None:
    """Insert a plan, and remove expired ones."""
    _remove_expired(tx, seconds(plan.created_at))
    row = tx.one(
        INSERT_PLAN,
        id=plan.id,
        rule=plan.rule_id,
        name=plan.name,
        total=plan.total,
        item_count=plan.kept,
        counts=dumps(plan.actions_by_type),
        warnings=dumps(plan.warnings),
        max_messages=plan.max_messages,
        can_undo=int(plan.can_undo),
        inboxes=stored_view(plan.inboxes),
        created_at=seconds(plan.created_at),
        expires_at=seconds(plan.expires_at),
    )
    assert row is not None
    tx.many(INSERT_ITEM, [_item_values(row[0], n, item) for n, item in enumerate(items)])


def _remove_expired(tx: Transaction, now: int) -> None:
    tx.put(
        """DELETE FROM plan_items WHERE plan IN
               (SELECT number FROM plans WHERE expires_at <= :now)""",
        now=now,
    )
    tx.put("DELETE FROM plans WHERE expires_at <= :now", now=now)


def remove_inbox_from_plans(tx: Transaction, inbox_id: str) -> None:
    """Remove the open plans and the plan items of a removed inbox.

    Applied plans can still be undone in the other inboxes.
    """
    open_plans = """
        SELECT number FROM plans WHERE state = 'open' AND (inboxes = :alone OR number IN
            (SELECT plan FROM plan_items WHERE inbox = :inbox))
    """
    which = {"inbox": inbox_id, "alone": dumps([inbox_id])}
    numbers = [row[0] for row in tx.all(open_plans, **which)]
    for number in numbers:
        tx.run("DELETE FROM plan_items WHERE plan = :n", n=number)
        tx.run("DELETE FROM plans WHERE number = :n", n=number)
    tx.run("DELETE FROM plan_items WHERE inbox = :inbox", inbox=inbox_id)


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
        "actions": dumps(item.actions),
        "reasons": dumps(item.why),
    }


def get_plan(tx: Transaction, plan_id: str, visible: Visible) -> Plan:
    """One plan. Raises NotFound."""
    return stored_plan(tx, plan_id, visible).plan


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan and its row number."""

    number: int
    plan: Plan


def stored_plan(tx: Transaction, plan_id: str, visible: Visible) -> StoredPlan:
    """One plan with its row number. Raises NotFound."""
    row = tx.one(f"SELECT {_COLUMNS} FROM plans WHERE id = :id", id=plan_id)
    if row is None or not visible.covers(view_in(row[13] if row[14] is None else row[14])):
        raise NotFound(f"no plan {plan_id}, or it has expired; run_rule_plan makes a new one")
    return StoredPlan(row[0], _plan(row))


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
        inboxes=view_in(row[13]),
    )


def plan_items(
    tx: Transaction, plan_id: str, visible: Visible, page: Slice
) -> tuple[Plan, Found[PlanItem]]:
    """A plan and one page of its messages, newest first. Raises NotFound."""
    stored = stored_plan(tx, plan_id, visible)
    start = int(page.after[0]) if page.after else page.offset
    items = _items(tx, stored.number, start, page.limit)
    end = start + len(items)
    more = (end,) if items and end < stored.plan.kept else None
    return stored.plan, Found(tuple(items), stored.plan.total, start, more)


def _items(tx: Transaction, plan: int, start: int, limit: int) -> list[PlanItem]:
    rows = tx.all(
        f"""SELECT {_ITEM} FROM plan_items WHERE plan = :plan AND position >= :start
             ORDER BY position LIMIT :limit""",
        plan=plan,
        start=start,
        limit=limit,
    )
    return [_item(row) for row in rows]


def plan_acts(tx: Transaction, plan_id: str, visible: Visible) -> frozenset[Action]:
    """The distinct actions of a plan. Raises NotFound."""
    number = stored_plan(tx, plan_id, visible).number
    rows = tx.all("SELECT DISTINCT actions FROM plan_items WHERE plan = :plan", plan=number)
    return frozenset(Action(*act) for (acts,) in rows for act in from_text(acts))


def every_item(tx: Transaction, stored: StoredPlan) -> Iterator[PlanItem]:
    """All messages of a plan, in order."""
    for start in range(0, stored.plan.kept, _BATCH_SIZE):
        yield from _items(tx, stored.number, start, _BATCH_SIZE)


def _item(row: Row) -> PlanItem:
    return PlanItem(
        message_id=row[0],
        inbox_id=row[1],
        subject=row[2],
        sender=row[3],
        date=moment(row[4]),
        before=_state(from_text(row[5])),
        after=_state(from_text(row[6])),
        actions=tuple(Action(*act) for act in from_text(row[7])),
        why=tuple(from_text(row[8])),
    )


def _state(values: dict[str, list[str]]) -> State:
    return State(**{name: tuple(value) for name, value in values.items()})
