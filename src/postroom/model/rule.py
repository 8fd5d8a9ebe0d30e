"""Rules that are kept, what they would do, and what they have done."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from postroom.model.facts import State
from postroom.model.message import INTERNAL

OWN_MARK = "X-Postroom-Rule"
"""The header by which we know mail that a rule has sent, ours or another's, and leave it alone."""

PlanState = Literal["open", "applied", "undone"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that is kept. `inboxes` are those it was made for; None is all of them."""

    id: str
    name: str
    description: str
    enabled: bool
    position: int
    yaml: str
    created_at: datetime
    updated_at: datetime
    inboxes: tuple[str, ...] | None = field(default=None, metadata=INTERNAL)


class Act(NamedTuple):
    """One action on one message, as values that can be stored."""

    type: str
    value: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class PlanItem:
    """What a plan does with one message; `before` is how it was when the plan was made."""

    message_id: str
    inbox_id: str
    subject: str
    sender: str
    date: datetime
    before: State
    after: State
    actions: tuple[Act, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rule would do, without the messages; they are read in pages."""

    id: str
    rule_id: str | None
    name: str
    created_at: datetime
    expires_at: datetime
    state: PlanState
    total: int
    kept: int
    actions_by_type: dict[str, int]
    warnings: tuple[str, ...]
    max_messages: int
    can_undo: bool
    inboxes: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class DryRunPlan:
    """What a rule would do: one page of its messages, each with actions and reasons."""

    plan_id: str
    rule_id: str | None
    created_at: datetime
    expires_at: datetime
    total_matches: int
    actions_by_type: dict[str, int]
    warnings: tuple[str, ...]
    matched_messages: tuple[dict[str, Any], ...]
    count: int
    total: int
    total_count: int
    limit: int
    offset: int
    has_more: bool
    next_cursor: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """What a rule does with a message that arrives, beside changing its state."""

    rule_id: str
    rule_name: str
    actions: tuple[Act, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Errand:
    """A forward or a reply that a rule asks for, claimed by one worker.

    It has the numbers of its inbox and its own.
    """

    inbox: int
    number: int
    id: str
    rule_id: str
    rule_name: str
    message_id: str
    inbox_id: str
    act: Act
    attempts: int
    holder: str


SHOWN = {
    "apply_label": "label",
    "remove_label": "label",
    "move": "mailbox",
    "forward": "to",
    "reply": "text",
    "webhook": "webhook",
    "remember": "text",
}
"""Under which name the value of an action is shown; the flat form of a rule takes the same."""


def shown_act(act: Act) -> dict[str, str]:
    """An action as callers see it."""
    value = {SHOWN[act.type]: act.value} if act.type in SHOWN else {}
    return {"type": act.type, **({"key": act.key} if act.key else {}), **value}
