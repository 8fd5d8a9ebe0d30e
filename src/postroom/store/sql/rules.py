"""Rules that are kept, in the order in which they run."""

from __future__ import annotations

from datetime import datetime

from postroom.errors import Conflict, NotFound
from postroom.model.inbox import Visible
from postroom.model.page import Found, Slice
from postroom.model.rule import Rule
from postroom.store.sql.values import dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

MOST_RULES = 1000
_COLUMNS = """id, name, description, enabled, position, yaml, created_at, updated_at, inboxes"""
INSERT = f"""
    INSERT INTO rules ({_COLUMNS})
    VALUES (:id, :name, :description, :enabled, :position, :yaml, :created_at, :updated_at,
            :inboxes)
"""


def add_rule(tx: Transaction, rule: Rule) -> Rule:
    """Keep a new rule, as the last. Raises Conflict when there are too many."""
    row = tx.one("SELECT count(*), coalesce(max(position), 0) FROM rules")
    count, last = row or (0, 0)
    if count >= MOST_RULES:
        raise Conflict(f"there are {count} rules already; delete some that are of no use")
    tx.run(
        INSERT,
        id=rule.id,
        name=rule.name,
        description=rule.description,
        enabled=int(rule.enabled),
        position=last + 1,
        yaml=rule.yaml,
        created_at=seconds(rule.created_at),
        updated_at=seconds(rule.updated_at),
        inboxes=None if rule.inboxes is None else dumps(rule.inboxes),
    )
    return get_rule(tx, rule.id, None)


def _rule(row: Row) -> Rule:
    return Rule(
        id=row[0],
        name=row[1],
        description=row[2],
        enabled=bool(row[3]),
        position=row[4],
        yaml=row[5],
        created_at=moment(row[6]),
        updated_at=moment(row[7]),
        inboxes=None if row[8] is None else tuple(from_text(row[8])),
    )


def _is_seen(rule: Rule, visible: Visible) -> bool:
    return visible is None or (rule.inboxes is not None and visible.issuperset(rule.inboxes))


def every_rule(tx: Transaction) -> list[Rule]:
    """All rules, in the order in which they run."""
    return [_rule(row) for row in tx.all(f"SELECT {_COLUMNS} FROM rules ORDER BY position, id")]


def list_rules(tx: Transaction, visible: Visible, page: Slice) -> Found[Rule]:
    """In the order in which they run."""
    found = [rule for rule in every_rule(tx) if _is_seen(rule, visible)]
    start = int(page.after[0]) if page.after else page.offset
    shown = found[start : start + page.limit]
    end = start + len(shown)
    return Found(tuple(shown), len(found), start, (end,) if shown and end < len(found) else None)


def get_rule(tx: Transaction, rule_id: str, visible: Visible) -> Rule:
    """One rule. Raises NotFound."""
    row = tx.one(f"SELECT {_COLUMNS} FROM rules WHERE id = :id", id=rule_id)
    if row is None or not _is_seen(_rule(row), visible):
        raise NotFound(f"no rule {rule_id}; list_rules shows those there are")
    return _rule(row)


def change_rule(
    tx: Transaction,
    rule_id: str,
    visible: Visible,
    *,
    enabled: bool | None,
    position: int | None,
    now: datetime,
) -> Rule:
    """Switch a rule on or off, or give it another place among the others. Raises NotFound."""
    rule = get_rule(tx, rule_id, visible)
    if enabled is not None:
        tx.run("UPDATE rules SET enabled = :on WHERE id = :id", on=int(enabled), id=rule_id)
    if position is not None:
        _place(tx, rule, position)
    tx.run("UPDATE rules SET updated_at = :now WHERE id = :id", now=seconds(now), id=rule_id)
    return get_rule(tx, rule_id, visible)


def _place(tx: Transaction, rule: Rule, position: int) -> None:
    """Put a rule at a place, counted from 1; the others move on."""
    order = [other.id for other in every_rule(tx) if other.id != rule.id]
    order.insert(position - 1, rule.id)
    for place, rule_id in enumerate(order, 1):
        tx.run("UPDATE rules SET position = :place WHERE id = :id", place=place, id=rule_id)


def remove_rule(tx: Transaction, rule_id: str, visible: Visible) -> Rule:
    """Forget a rule; plans of it can be undone, but not applied any more. Raises NotFound."""
    rule = get_rule(tx, rule_id, visible)
    tx.run("DELETE FROM rules WHERE id = :id", id=rule_id)
    return rule
