"""A plan as a table, and applying and undoing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from postroom.model.rule import PlanItem
from postroom.operations.rule_runs import get_plan_changes
from postroom.operations.rules import apply_rule_plan, undo_rule_plan
from postroom.surfaces.web.page import Page, Redirect, Values, Visit

_ROWS = 50
_OUTGOING = {"forward": "forward to", "reply": "reply", "webhook": "call"}
"""Actions that show mail to somebody outside, in words."""


class Change(NamedTuple):
    """One change of a message: names before and after, or what leaves."""

    kind: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    leaves: str = ""


def changes_of(item: PlanItem) -> list[Change]:
    """What a plan does with a message; empty if nothing."""
    return [*_state_changes(item), *_other_changes(item)] if item.actions else []


def _state_changes(item: PlanItem) -> Iterator[Change]:
    before, after = item.before, item.after
    pairs = (
        ("mailbox", before.mailboxes, after.mailboxes),
        ("labels", before.labels, after.labels),
        ("flags", before.flags, after.flags),
    )
    for kind, old, new in pairs:
        if old != new:
            yield Change(kind, tuple(old), tuple(new))


def _other_changes(item: PlanItem) -> Iterator[Change]:
    for action in item.actions:
        if action.type in _OUTGOING:
            yield Change("outgoing", leaves=f"{_OUTGOING[action.type]} {action.value[:200]}")
        elif action.type == "remember":
            yield Change("memory", after=(action.key,))


def outcome_of(item: PlanItem | None) -> str:
    """What a version of a rule does with a message, in words."""
    if item is None:
        return "does not match"
    words = [f"{act.type} {act.value[:100]}".strip() for act in item.actions]
    return ", ".join(words) or "matches, and changes nothing"


async def plan(visit: Visit) -> Values:
    """A plan with its messages, before and after."""
    cursor = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    found = await visit.call(get_plan_changes, plan_id=visit.path["plan_id"], limit=_ROWS, **cursor)
    return {
        "plan": found.plan,
        "items": found.items,
        "changes_of": changes_of,
        # The text of a rule that is not saved, so that it can be planned again.
        "text": visit.form.get("rule_yaml", ""),
        "is_preview": False,
    }


PLAN = Page("/rules/plans/{plan_id}", "rules/plan.html", plan)


async def apply(visit: Visit) -> Redirect:
    """Carry out a plan exactly as it was shown."""
    plan_id = visit.path["plan_id"]
    await visit.call(apply_rule_plan, plan_id=plan_id)
    return Redirect(f"/rules/plans/{plan_id}", "plan applied")


async def undo(visit: Visit) -> Redirect:
    """Take back what a plan did."""
    plan_id = visit.path["plan_id"]
    result = await visit.call(undo_rule_plan, plan_id=plan_id)
    notice = "plan undone in part" if result.failed else "plan undone"
    return Redirect(f"/rules/plans/{plan_id}", notice)
