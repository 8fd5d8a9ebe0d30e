"""Taking a plan back, as far as nobody has changed its messages since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from postroom.errors import Conflict, NotFound
from postroom.model.facts import State
from postroom.model.inbox import Visible
from postroom.model.message import ActionResult, FailedAction
from postroom.model.rule import Plan, PlanItem
from postroom.store.sql.errands import cancel_errands
from postroom.store.sql.plan_states import name_sets, note_item, set_states, states_of
from postroom.store.sql.plans import every_item, kept_plan
from postroom.store.transaction import Transaction


def undo_plan(
    tx: Transaction, plan_id: str, visible: Visible, *, actor: str, now: datetime
) -> ActionResult:
    """Put back what is still as the plan left it; the rest is named.

    Raises:
        NotFound: there is no such plan, or it was applied too long ago.
        Conflict: it was not applied, was undone before, or its rule forbids undoing.
    """
    kept = kept_plan(tx, plan_id, visible)
    if kept.plan.state != "applied":
        was = "never applied" if kept.plan.state == "open" else "undone already"
        raise Conflict(f"{plan_id} was {was}; there is nothing to undo")
    if not kept.plan.can_undo:
        raise Conflict(f"the rule of {plan_id} says `undo: false`; it cannot be undone")
    restored: list[str] = []
    failed: list[FailedAction] = []
    items = [item for item in every_item(tx, kept) if item.actions]
    states = states_of(tx, [item.message_id for item in items])
    set_states(tx, list(_to_restore(items, states)))
    for item in items:
        if item.message_id not in states:
            gone = f"no message {item.message_id} any more"
            failed.append(FailedAction(item.message_id, NotFound.code, gone))
            continue
        problems = _not_undone(tx, kept.plan, item, states[item.message_id])
        restored.append(item.message_id)
        failed += [FailedAction(item.message_id, Conflict.code, text) for text in problems]
        note_item(tx, kept.plan, item, "undo_rule_plan", actor, now, problems)
    tx.put("UPDATE plans SET state = 'undone' WHERE number = :n", n=kept.number)
    return ActionResult.of(tuple(restored), tuple(failed), plan_id)


def _to_restore(
    items: Iterable[PlanItem], states: Mapping[str, State]
) -> Iterator[tuple[str, State]]:
    """The messages that are still there and not as they were, and how they were."""
    for item in items:
        state = states.get(item.message_id)
        if state is not None and (wanted := _restored(item, state)[0]) != state:
            yield item.message_id, wanted


def _not_undone(tx: Transaction, plan: Plan, item: PlanItem, state: State) -> list[str]:
    """Take back what is still to be done for one message; what of the rest stays, in words."""
    problems = []
    kept_changes = _restored(item, state)[1]
    if kept_changes:
        problems.append(f"not undone, since it was changed afterwards: {kept_changes}")
    cancelled = cancel_errands(tx, plan.id, item.message_id)
    for act in item.actions:
        if act in cancelled:
            cancelled.remove(act)
        elif act.type in ("forward", "reply", "webhook"):
            problems.append(f"{act.type} {act.value[:100]} has left the house".replace("  ", " "))
        elif act.type == "remember":
            problems.append(f"the memory {act.key} stays; memory_delete forgets it")
    return problems


def _restored(item: PlanItem, state: State) -> tuple[State, str]:
    """How a message should be again, and what of it somebody else has changed since."""
    before, after = item.before, item.after
    labels, labels_kept = _names(before.labels, after.labels, state.labels)
    flags, flags_kept = _names(before.flags, after.flags, state.flags)
    wanted = replace(state, labels=labels, flags=flags)
    is_in_place = name_sets(state)[2] == name_sets(after)[2]
    if is_in_place:
        wanted = replace(wanted, mailboxes=before.mailboxes)
    place_kept = not is_in_place and name_sets(state)[2] != name_sets(before)[2]
    words = (("labels", labels_kept), ("flags", flags_kept), ("place", place_kept))
    return wanted, ", ".join(word for word, is_kept in words if is_kept)


def _names(
    before: tuple[str, ...], after: tuple[str, ...], now: tuple[str, ...]
) -> tuple[tuple[str, ...], bool]:
    """Names as they were, if nobody touched them since; else each one that nobody touched."""
    was, left, present = ({n.casefold() for n in names} for names in (before, after, now))
    if left == present:
        return before, False
    added, removed = left - was, was - left
    kept = tuple(n for n in now if n.casefold() not in added)
    back = tuple(n for n in before if n.casefold() in removed - present)
    return (*kept, *back), not (added <= present and not removed & present)
