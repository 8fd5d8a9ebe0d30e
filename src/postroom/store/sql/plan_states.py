"""How the messages of a plan are, compared and set."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from postroom.errors import Conflict
from postroom.model.facts import State
from postroom.model.rule import Plan, PlanItem, shown_act
from postroom.model.stored import Change
from postroom.store.sql.audit import note
from postroom.store.sql.changing import change_each
from postroom.store.sql.values import any_of, flag_names, from_text
from postroom.store.transaction import Transaction

_AT_ONCE = 500
STATES = "SELECT id, labels, flags, mailboxes FROM messages WHERE id {among}"


def states_of(tx: Transaction, ids: Sequence[str]) -> dict[str, State]:
    """How messages are now; those that are gone are missing."""
    found: dict[str, State] = {}
    for first in range(0, len(ids), _AT_ONCE):
        among, params = any_of("id", ids[first : first + _AT_ONCE])
        for message_id, labels, flags, mailboxes in tx.all(STATES.format(among=among), **params):
            found[message_id] = State(
                tuple(from_text(labels)), flag_names(flags), tuple(from_text(mailboxes))
            )
    return found


def is_same(one: State, other: State) -> bool:
    """Names are the same without case and in any order; only the flags are words of ours."""
    return name_sets(one) == name_sets(other)


def name_sets(state: State) -> tuple[set[str], set[str], set[str]]:
    """Labels, flags and mailboxes, as they are compared."""
    return (
        {name.casefold() for name in state.labels},
        set(state.flags),
        {name.casefold() for name in state.mailboxes},
    )


def set_states(tx: Transaction, states: Sequence[tuple[str, State]]) -> None:
    """Make messages be so. Raises Conflict if one cannot be."""
    changes = [
        (message_id, Change(labels=to.labels, flags=to.flags, mailboxes=to.mailboxes))
        for message_id, to in states
    ]
    result = change_each(tx, changes, None)
    if result.failed:
        first = result.failed[0]
        raise Conflict(f"{first.message_id}: {first.message}; nothing was done")


def note_item(
    tx: Transaction,
    plan: Plan,
    item: PlanItem,
    action: str,
    actor: str,
    now: datetime,
    failed: Sequence[str] = (),
) -> None:
    """Write into the audit log what was done to one message."""
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
