"""Plans: kept until they end, carried out exactly or not at all, and taken back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from postroom.errors import Conflict, NotFound
from postroom.model.facts import State
from postroom.model.inbox import Visible
from postroom.model.message import ActionResult, FailedAction
from postroom.model.page import Found, Slice
from postroom.model.rule import Act, Plan, PlanItem, RuleEffect, shown_act
from postroom.model.stored import Change
from postroom.store.sql.audit import note
from postroom.store.sql.changing import change_each
from postroom.store.sql.errands import ABOUT, BEYOND, cancel_errands, carry_out
from postroom.store.sql.events import About
from postroom.store.sql.values import any_of, dumps, flag_names, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

UNDO_KEPT = timedelta(days=30)
_AT_ONCE = 500
_MOST_NAMED = 20
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
STATES = "SELECT id, labels, flags, mailboxes FROM messages WHERE id {among}"


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
    return _kept(tx, plan_id, visible).plan


@dataclass(frozen=True, slots=True)
class _Kept:
    number: int
    plan: Plan


def _kept(tx: Transaction, plan_id: str, visible: Visible) -> _Kept:
    row = tx.one(f"SELECT {_COLUMNS} FROM plans WHERE id = :id", id=plan_id)
    plan = None if row is None else _plan(row)
    if row is None or plan is None or not _is_seen(plan, visible):
        raise NotFound(f"no plan {plan_id}, or its time is over; run_rule_plan makes a new one")
    return _Kept(row[0], plan)


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
    kept = _kept(tx, plan_id, visible)
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


def _every_item(tx: Transaction, kept: _Kept) -> Iterator[PlanItem]:
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


def _states(tx: Transaction, ids: Sequence[str]) -> dict[str, State]:
    """How messages are now; those that are gone are missing."""
    found: dict[str, State] = {}
    for first in range(0, len(ids), _AT_ONCE):
        among, params = any_of("id", ids[first : first + _AT_ONCE])
        for message_id, labels, flags, mailboxes in tx.all(STATES.format(among=among), **params):
            found[message_id] = State(
                tuple(from_text(labels)), flag_names(flags), tuple(from_text(mailboxes))
            )
    return found


def _same(one: State, other: State) -> bool:
    """Names are the same without case and in any order; only the flags are words of ours."""
    return _sets(one) == _sets(other)


def _sets(state: State) -> tuple[set[str], set[str], set[str]]:
    return (
        {name.casefold() for name in state.labels},
        set(state.flags),
        {name.casefold() for name in state.mailboxes},
    )


def apply_plan(
    tx: Transaction, plan_id: str, visible: Visible, *, actor: str, now: datetime
) -> ActionResult:
    """Do exactly what a plan says, or nothing.

    Raises:
        NotFound: there is no such plan, or its time is over.
        Conflict: it was applied before, is too large, or one of its messages is not as it was.
    """
    kept = _kept(tx, plan_id, visible)
    plan = kept.plan
    _check_open(tx, plan, now)
    items = list(_every_item(tx, kept))
    _check_states(items, _states(tx, [item.message_id for item in items]))
    done = [item for item in items if item.actions]
    _set_states(tx, [(item.message_id, item.after) for item in done])
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
        elif not _same(state, item.before):
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
    pairs = zip(words, _sets(before), _sets(now), strict=True)
    return ", ".join(word for word, was, is_now in pairs if was != is_now)


def _apply(tx: Transaction, plan: Plan, item: PlanItem, *, actor: str, now: datetime) -> None:
    failed: list[str] = []
    if any(act.type in BEYOND for act in item.actions):
        row = tx.one(ABOUT, id=item.message_id)
        assert row is not None
        effect = RuleEffect(plan.rule_id or plan.id, plan.name, item.actions)
        failed = carry_out(tx, effect, About(*row), now, plan_id=plan.id)
    _note(tx, plan, item, "apply_rule_plan", actor, now, failed)


def _keep_states(tx: Transaction, plan: int, items: Sequence[PlanItem]) -> None:
    """Names are kept as they were first written: undo compares with what is really there."""
    states = _states(tx, [item.message_id for item in items])
    tx.many(
        "UPDATE plan_items SET after = :after WHERE plan = :plan AND position = :position",
        [
            {"after": dumps(states[item.message_id]), "plan": plan, "position": position}
            for position, item in enumerate(items)
            if item.actions
        ],
    )


def _set_states(tx: Transaction, states: Sequence[tuple[str, State]]) -> None:
    changes = [
        (message_id, Change(labels=to.labels, flags=to.flags, mailboxes=to.mailboxes))
        for message_id, to in states
    ]
    result = change_each(tx, changes, None)
    if result.failed:
        first = result.failed[0]
        raise Conflict(f"{first.message_id}: {first.message}; nothing was done")


def _note(
    tx: Transaction,
    plan: Plan,
    item: PlanItem,
    action: str,
    actor: str,
    now: datetime,
    failed: Sequence[str] = (),
) -> None:
    details: dict[str, object] = {
        "plan_id": plan.id,
        "rule_id": plan.rule_id,
        "actions": [shown_act(act) for act in item.actions],
    }
    note(
        tx,
        at=now,
        actor=actor,
        action=action,
        target=item.message_id,
        inbox_id=item.inbox_id,
        details={**details, **({"failed": list(failed)} if failed else {})},
    )


def undo_plan(
    tx: Transaction, plan_id: str, visible: Visible, *, actor: str, now: datetime
) -> ActionResult:
    """Put back what is still as the plan left it; the rest is named.

    Raises:
        NotFound: there is no such plan, or it was applied too long ago.
        Conflict: it was not applied, was undone before, or its rule forbids undoing.
    """
    kept = _kept(tx, plan_id, visible)
    if kept.plan.state != "applied":
        was = "never applied" if kept.plan.state == "open" else "undone already"
        raise Conflict(f"{plan_id} was {was}; there is nothing to undo")
    if not kept.plan.can_undo:
        raise Conflict(f"the rule of {plan_id} says `undo: false`; it cannot be undone")
    restored: list[str] = []
    failed: list[FailedAction] = []
    items = [item for item in _every_item(tx, kept) if item.actions]
    states = _states(tx, [item.message_id for item in items])
    _set_states(tx, list(_to_restore(items, states)))
    for item in items:
        if item.message_id not in states:
            gone = f"no message {item.message_id} any more"
            failed.append(FailedAction(item.message_id, NotFound.code, gone))
            continue
        problems = _not_undone(tx, kept.plan, item, states[item.message_id])
        restored.append(item.message_id)
        failed += [FailedAction(item.message_id, Conflict.code, text) for text in problems]
        _note(tx, kept.plan, item, "undo_rule_plan", actor, now, problems)
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
    is_in_place = _sets(state)[2] == _sets(after)[2]
    if is_in_place:
        wanted = replace(wanted, mailboxes=before.mailboxes)
    place_kept = not is_in_place and _sets(state)[2] != _sets(before)[2]
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
