"""Carrying a plan out: exactly as it says, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from postroom.errors import Conflict, NotFound
from postroom.model.facts import State
from postroom.model.inbox import Visible
from postroom.model.message import ActionResult
from postroom.model.rule import Plan, PlanItem, RuleEffect
from postroom.store.sql.errands import ABOUT, BEYOND, carry_out
from postroom.store.sql.events import About
from postroom.store.sql.plan_states import is_same, name_sets, note_item, set_states, states_of
from postroom.store.sql.plans import every_item, kept_plan
from postroom.store.sql.values import dumps, seconds
from postroom.store.transaction import Transaction

UNDO_KEPT = timedelta(days=30)
_MOST_NAMED = 20


def apply_plan(
    tx: Transaction, plan_id: str, visible: Visible, *, actor: str, now: datetime
) -> ActionResult:
    """Do exactly what a plan says, or nothing.

    Raises:
        NotFound: there is no such plan, or its time is over.
        Conflict: it was applied before, is too large, or one of its messages is not as it was.
    """
    kept = kept_plan(tx, plan_id, visible)
    plan = kept.plan
    _check_open(tx, plan, now)
    items = list(every_item(tx, kept))
    _check_states(items, states_of(tx, [item.message_id for item in items]))
    done = [item for item in items if item.actions]
    set_states(tx, [(item.message_id, item.after) for item in done])
    for item in done:
        _apply(tx, plan, item, actor=actor, now=now)
    _keep_states(tx, kept.number, items)
    tx.put(
        "UPDATE plans SET state = 'applied', expires_at = :until WHERE number = :n",
        until=seconds(now + UNDO_KEPT),
        n=kept.number,
    )
    return ActionResult.of(tuple(item.message_id for item in items), (), plan.id)


def _check_open(tx: Transaction, plan: Plan, now: datetime) -> None:
    if plan.state != "open":
        raise Conflict(f"{plan.id} was {plan.state} already; run_rule_plan makes a new plan")
    if now >= plan.expires_at:
        raise NotFound(f"the time of {plan.id} is over; run_rule_plan makes a new plan")
    if plan.total > plan.max_messages:
        raise Conflict(
            f"{plan.id} has {plan.total} messages, but safety.max_messages of its rule is "
            f"{plan.max_messages}; narrow the rule or raise it"
        )
    rule = plan.rule_id and tx.one("SELECT 1 FROM rules WHERE id = :id", id=plan.rule_id)
    if plan.rule_id and rule is None:
        raise Conflict(f"the rule of {plan.id} was deleted; nothing was done")


def _check_states(items: Sequence[PlanItem], states: dict[str, State]) -> None:
    stale = []
    for item in items:
        state = states.get(item.message_id)
        if state is None:
            stale.append(f"{item.message_id} (deleted)")
        elif not is_same(state, item.before):
            stale.append(f"{item.message_id} ({_difference(item.before, state)})")
    if stale:
        more = f" and {len(stale) - _MOST_NAMED} more" if len(stale) > _MOST_NAMED else ""
        raise Conflict(
            f"{len(stale)} of {len(items)} messages changed since the plan was made: "
            f"{', '.join(stale[:_MOST_NAMED])}{more}; nothing was done, make a new plan",
            message_ids=[text.partition(" ")[0] for text in stale],
        )


def _difference(before: State, now: State) -> str:
    words = ("relabelled", "flagged", "moved")
    pairs = zip(words, name_sets(before), name_sets(now), strict=True)
    return ", ".join(word for word, was, is_now in pairs if was != is_now)


def _apply(tx: Transaction, plan: Plan, item: PlanItem, *, actor: str, now: datetime) -> None:
    failed: list[str] = []
    if any(act.type in BEYOND for act in item.actions):
        row = tx.one(ABOUT, id=item.message_id)
        assert row is not None
        effect = RuleEffect(plan.rule_id or plan.id, plan.name, item.actions)
        failed = carry_out(tx, effect, About(*row), now, plan_id=plan.id)
    note_item(tx, plan, item, "apply_rule_plan", actor, now, failed)


def _keep_states(tx: Transaction, plan: int, items: Sequence[PlanItem]) -> None:
    """Names are kept as they were first written: undo compares with what is really there."""
    states = states_of(tx, [item.message_id for item in items])
    tx.many(
        "UPDATE plan_items SET after = :after WHERE plan = :plan AND position = :position",
        [
            {"after": dumps(states[item.message_id]), "plan": plan, "position": position}
            for position, item in enumerate(items)
            if item.actions
        ],
    )
