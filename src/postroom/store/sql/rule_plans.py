"""Plans: stored until they expire, listed, applied and undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from postroom.errors import Conflict, NotFound
from postroom.model.event import AuditRecord
from postroom.model.inbox import Visible
from postroom.model.key import Caller
from postroom.model.mail.message import ActionResult, FailedAction, MessageState
from postroom.model.mail.storage import Change
from postroom.model.page import Found, Slice
from postroom.model.rule import Action, Plan, PlanItem, RuleEffect, restored_names
from postroom.model.view import EVERYTHING, view_names
from postroom.store.audited_store import add_action_entries
from postroom.store.sql.audit import SIDE_EFFECTS, VISIBILITY_KEY
from postroom.store.sql.events import MessageRef, count_mail
from postroom.store.sql.messages.message_changes import change_each
from postroom.store.sql.rules import ABOUT, cancel_rule_jobs, run_side_effects
from postroom.store.sql.statements import (
    all_among,
    dumps,
    flag_names,
    from_text,
    inbox_number,
    insert_many,
    insert_numbered,
    moment,
    seconds,
    stored_view,
    update,
    view_in,
)
from postroom.store.transaction import Row, Transaction

_BATCH_SIZE = 500
COLUMNS = """number, id, rule, name, created_at, expires_at, state, total, item_count, counts,
    warnings, max_messages, can_undo, inboxes, visible_inboxes, authors"""
_ITEM = "message, inbox, subject, sender, date, before, after, actions, reasons"
_OF_RULE = "SELECT made_by, visible_inboxes FROM rules WHERE id = :id"
"""A rule that is hidden because of a removed inbox hides its plans too."""


def save_plan(tx: Transaction, plan: Plan, items: Sequence[PlanItem]) -> None:
    """Insert a plan, and remove expired ones."""
    now = seconds(plan.created_at)
    expired = "SELECT number FROM plans WHERE expires_at <= :now"
    tx.put(f"DELETE FROM plan_items WHERE plan IN ({expired})", now=now)
    tx.put("DELETE FROM plans WHERE expires_at <= :now", now=now)
    made_by, visible_inboxes = tx.one(_OF_RULE, id=plan.rule_id) or (None, None)
    authors = dict.fromkeys((*plan.authors, *([made_by] if made_by else ())))
    number = insert_numbered(
        tx,
        "plans",
        id=plan.id,
        rule=plan.rule_id,
        name=plan.name,
        state="open",
        total=plan.total,
        item_count=plan.kept,
        counts=dumps(plan.actions_by_type),
        warnings=dumps(plan.warnings),
        max_messages=plan.max_messages,
        can_undo=int(plan.can_undo),
        inboxes=stored_view(plan.inboxes),
        created_at=now,
        expires_at=seconds(plan.expires_at),
        authors=dumps(list(authors)),
        visible_inboxes=visible_inboxes,
    )
    insert_many(tx, "plan_items", [_item_values(number, n, item) for n, item in enumerate(items)])


def remove_inbox_from_plans(tx: Transaction, inbox_id: str) -> None:
    """Remove the open plans and the plan items of a removed inbox.

    Applied plans can still be undone in the other inboxes.
    """
    open_plans = """
        SELECT number FROM plans WHERE state = 'open' AND (inboxes = :alone OR number IN
            (SELECT plan FROM plan_items WHERE inbox = :inbox))
    """
    for (number,) in tx.all(open_plans, inbox=inbox_id, alone=dumps([inbox_id])):
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


def stored_plan(tx: Transaction, plan_id: str, visible: Visible) -> tuple[int, Plan]:
    """The row number of a plan, and the plan. Raises NotFound."""
    row = tx.one(f"SELECT {COLUMNS} FROM plans WHERE id = :id", id=plan_id)
    if row is None or not visible.covers((plan := plan_in(row)).visible_inboxes):
        raise NotFound(f"no plan {plan_id}, or it has expired; run_rule_plan makes a new one")
    return row[0], plan


def plan_in(row: Row) -> Plan:
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
        made_for=None if row[14] is None else view_in(row[14]),
        authors=tuple(from_text(row[15])),
    )


def plan_items(
    tx: Transaction, plan_id: str, visible: Visible, page: Slice
) -> tuple[Plan, Found[PlanItem]]:
    """A plan and one page of its messages, newest first. Raises NotFound."""
    number, plan = stored_plan(tx, plan_id, visible)
    start = int(page.after[0]) if page.after else page.offset
    items = _items(tx, number, start, page.limit)
    end = start + len(items)
    more = (end,) if items and end < plan.kept else None
    return plan, Found(tuple(items), plan.total, start, more)


def _items(tx: Transaction, plan: int, start: int, limit: int) -> list[PlanItem]:
    rows = tx.all(
        f"""SELECT {_ITEM} FROM plan_items WHERE plan = :plan AND position >= :start
             ORDER BY position LIMIT :limit""",
        plan=plan,
        start=start,
        limit=limit,
    )
    return [_item(row) for row in rows]


def plan_actions(tx: Transaction, plan_id: str, visible: Visible) -> frozenset[Action]:
    """The distinct actions of a plan. Raises NotFound."""
    number, _ = stored_plan(tx, plan_id, visible)
    rows = tx.all("SELECT DISTINCT actions FROM plan_items WHERE plan = :plan", plan=number)
    return frozenset(Action(*action) for (actions,) in rows for action in from_text(actions))


def all_items(tx: Transaction, number: int, plan: Plan) -> Iterator[PlanItem]:
    """All messages of a plan, in order."""
    for start in range(0, plan.kept, _BATCH_SIZE):
        yield from _items(tx, number, start, _BATCH_SIZE)


def _item(row: Row) -> PlanItem:
    return PlanItem(
        message_id=row[0],
        inbox_id=row[1],
        subject=row[2],
        sender=row[3],
        date=moment(row[4]),
        before=_state(from_text(row[5])),
        after=_state(from_text(row[6])),
        actions=tuple(Action(*action) for action in from_text(row[7])),
        why=tuple(from_text(row[8])),
    )


def _state(values: dict[str, list[str]]) -> MessageState:
    return MessageState(**{name: tuple(value) for name, value in values.items()})


STATES = "SELECT id, labels, flags, mailboxes FROM messages WHERE id {among}"


def states_of(tx: Transaction, ids: Sequence[str]) -> dict[str, MessageState]:
    """The current flags, labels and mailboxes of messages; removed messages are missing."""
    return {
        message_id: MessageState(
            labels=tuple(from_text(labels)),
            flags=flag_names(flags),
            mailboxes=tuple(from_text(mailboxes)),
        )
        for message_id, labels, flags, mailboxes in all_among(tx, STATES, ids)
    }


def name_sets(state: MessageState) -> tuple[set[str], set[str], set[str]]:
    """Labels, flags and mailboxes, which are compared without case and order."""
    return (
        {name.casefold() for name in state.labels},
        set(state.flags),
        {name.casefold() for name in state.mailboxes},
    )


def set_states(tx: Transaction, states: Sequence[tuple[str, MessageState]]) -> None:
    """Set the state of messages. Raises Conflict if one cannot be changed."""
    changes = [
        (message_id, Change(labels=to.labels, flags=to.flags, mailboxes=to.mailboxes))
        for message_id, to in states
    ]
    result = change_each(tx, changes, EVERYTHING)
    if result.failed:
        first = result.failed[0]
        raise Conflict(f"{first.message_id}: {first.message}; nothing was done")


def audit_item(
    tx: Transaction, plan: Plan, item: PlanItem, record: AuditRecord, failed: Sequence[str]
) -> None:
    """Record in the audit log what was done to one message."""
    known = {VISIBILITY_KEY: view_names(plan.visible_inboxes)}
    details = {"plan_id": plan.id, "rule_id": plan.rule_id, **known}
    record = replace(record, targets=(item.message_id,), details=details)
    add_action_entries(tx, record, item.actions, inbox_id=item.inbox_id, failed=failed)


UNDO_PERIOD = timedelta(days=30)
_MAX_NAMED = 20


def apply_plan(
    tx: Transaction, plan_id: str, caller: Caller, *, authority: str, now: datetime
) -> ActionResult:
    """Apply a plan completely or not at all; its rule jobs run on *authority*.

    Raises:
        NotFound: there is no such plan, or it has expired.
        Conflict: it was applied before, is too large, or one of its messages has changed.
    """
    number, plan = stored_plan(tx, plan_id, caller.inboxes)
    _check_open(tx, plan, now)
    items = list(all_items(tx, number, plan))
    _check_states(items, states_of(tx, [item.message_id for item in items]))
    done = [item for item in items if item.actions]
    set_states(tx, [(item.message_id, item.after) for item in done])
    for item in done:
        _apply(tx, plan, item, caller, authority, now)
    for inbox_id, count in Counter(item.inbox_id for item in done).items():
        count_mail(tx, "rules", inbox_number(tx, inbox_id), now, count=count)
    _store_states(tx, number, items)
    expires_at = seconds(now + UNDO_PERIOD)
    update(tx, "plans", {"number": number}, state="applied", expires_at=expires_at)
    return ActionResult.of(tuple(item.message_id for item in items), (), plan.id)


def _check_open(tx: Transaction, plan: Plan, now: datetime) -> None:
    if plan.state != "open":
        raise Conflict(f"{plan.id} was {plan.state} already; run_rule_plan makes a new plan")
    if now >= plan.expires_at:
        raise NotFound(f"{plan.id} has expired; run_rule_plan makes a new plan")
    if plan.total > plan.max_messages:
        raise Conflict(
            f"{plan.id} has {plan.total} messages, but safety.max_messages of its rule is "
            f"{plan.max_messages}; narrow the rule or raise it"
        )
    rule = plan.rule_id and tx.one("SELECT 1 FROM rules WHERE id = :id", id=plan.rule_id)
    if plan.rule_id and rule is None:
        raise Conflict(f"the rule of {plan.id} was deleted; nothing was done")


def _check_states(items: Sequence[PlanItem], states: dict[str, MessageState]) -> None:
    stale = []
    for item in items:
        state = states.get(item.message_id)
        if state is None:
            stale.append(f"{item.message_id} (deleted)")
        elif name_sets(state) != name_sets(item.before):
            stale.append(f"{item.message_id} ({_difference(item.before, state)})")
    if stale:
        more = f" and {len(stale) - _MAX_NAMED} more" if len(stale) > _MAX_NAMED else ""
        raise Conflict(
            f"{len(stale)} of {len(items)} messages changed since the plan was made: "
            f"{', '.join(stale[:_MAX_NAMED])}{more}; nothing was done, make a new plan",
            message_ids=[text.partition(" ")[0] for text in stale],
        )


def _difference(before: MessageState, now: MessageState) -> str:
    words = ("relabelled", "flagged", "moved")
    pairs = zip(words, name_sets(before), name_sets(now), strict=True)
    return ", ".join(word for word, was, is_now in pairs if was != is_now)


def _apply(
    tx: Transaction, plan: Plan, item: PlanItem, caller: Caller, authority: str, now: datetime
) -> None:
    failed: list[str] = []
    if any(action.type in SIDE_EFFECTS for action in item.actions):
        row = tx.one(ABOUT, id=item.message_id)
        assert row is not None
        rule_id = plan.rule_id or plan.id
        effect = RuleEffect(
            rule_id,
            plan.name,
            item.actions,
            caller=caller,
            authority=authority,
            authors=plan.authors,
            visible_inboxes=plan.visible_inboxes,
        )
        failed = run_side_effects(tx, effect, MessageRef(*row), now, plan_id=plan.id)
    audit_item(tx, plan, item, AuditRecord(caller.key_id, "apply_rule_plan", now), failed)


def _store_states(tx: Transaction, plan: int, items: Sequence[PlanItem]) -> None:
    """Store the states after the plan with their actual spelling, which undo compares."""
    states = states_of(tx, [item.message_id for item in items])
    tx.many(
        "UPDATE plan_items SET after = :after WHERE plan = :plan AND position = :position",
        [
            {"after": dumps(states[item.message_id]), "plan": plan, "position": position}
            for position, item in enumerate(items)
            if item.actions
        ],
    )


def undo_plan(
    tx: Transaction, plan_id: str, visible: Visible, *, actor: str, now: datetime
) -> ActionResult:
    """Restore what is unchanged since the plan was applied; the rest is listed as failed.

    Raises:
        NotFound: there is no such plan, or it was applied too long ago.
        Conflict: it was not applied, was undone before, or its rule forbids undoing.
    """
    number, plan = stored_plan(tx, plan_id, visible)
    if plan.state != "applied":
        was = "never applied" if plan.state == "open" else "undone already"
        raise Conflict(f"{plan_id} was {was}; there is nothing to undo")
    if not plan.can_undo:
        raise Conflict(f"the rule of {plan_id} says `undo: false`; it cannot be undone")
    restored: list[str] = []
    failed: list[FailedAction] = []
    items = [item for item in all_items(tx, number, plan) if item.actions]
    states = states_of(tx, [item.message_id for item in items])
    set_states(tx, list(_to_restore(items, states)))
    for item in items:
        if item.message_id not in states:
            missing = f"no message {item.message_id}"
            failed.append(FailedAction(item.message_id, NotFound.code, missing))
            continue
        problems = _undo_problems(tx, plan, item, states[item.message_id])
        restored.append(item.message_id)
        failed += [FailedAction(item.message_id, Conflict.code, text) for text in problems]
        audit_item(tx, plan, item, AuditRecord(actor, "undo_rule_plan", now), problems)
    update(tx, "plans", {"number": number}, state="undone")
    return ActionResult.of(tuple(restored), tuple(failed), plan_id)


def _to_restore(
    items: Iterable[PlanItem], states: Mapping[str, MessageState]
) -> Iterator[tuple[str, MessageState]]:
    """The existing messages that differ from their state before the plan, with that state."""
    for item in items:
        state = states.get(item.message_id)
        if state is not None and (target := _restored(item, state)[0]) != state:
            yield item.message_id, target


def _undo_problems(tx: Transaction, plan: Plan, item: PlanItem, state: MessageState) -> list[str]:
    """Cancel pending rule jobs of one message, and describe what cannot be undone."""
    problems = []
    kept_changes = _restored(item, state)[1]
    if kept_changes:
        problems.append(f"not undone, since it was changed afterwards: {kept_changes}")
    cancelled = cancel_rule_jobs(tx, plan.id, item.message_id)
    for action in item.actions:
        if action in cancelled:
            cancelled.remove(action)
        elif action.type in ("forward", "reply", "webhook"):
            sent = f"{action.type} {action.value[:100]} was sent already"
            problems.append(sent.replace("  ", " "))
        elif action.type == "remember":
            problems.append(f"the memory {action.key} stays; memory_delete removes it")
    return problems


def _restored(item: PlanItem, state: MessageState) -> tuple[MessageState, str]:
    """The state to restore, and the names of the fields that were changed since."""
    before, after = item.before, item.after
    labels, labels_kept = restored_names(before.labels, after.labels, state.labels)
    flags, flags_kept = restored_names(before.flags, after.flags, state.flags)
    target = replace(state, labels=labels, flags=flags)
    is_in_place = name_sets(state)[2] == name_sets(after)[2]
    if is_in_place:
        target = replace(target, mailboxes=before.mailboxes)
    place_kept = not is_in_place and name_sets(state)[2] != name_sets(before)[2]
    words = (("labels", labels_kept), ("flags", flags_kept), ("place", place_kept))
    return target, ", ".join(word for word, is_kept in words if is_kept)
