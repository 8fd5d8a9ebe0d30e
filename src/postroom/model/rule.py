"""Rules, plans, and messages as rules see them."""

from __future__ import annotations

import hashlib
from dataclasses import field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from postroom.model.key import OWNER, Caller
from postroom.model.mail.message import INTERNAL, Direction, MessageState, NamedAddress
from postroom.model.page import Page
from postroom.model.values import dataclass
from postroom.model.view import EVERYTHING, View


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """The headers of a message, and what follows from them.

    `is_ours` means that one of our rules forwarded it; `is_report` that it reports on another mail.
    """

    headers: tuple[tuple[str, str], ...] = ()
    list_id: str | None = None
    is_automatic: bool = False
    is_report: bool = False
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """A message as conditions see it. `header_facts` is None until the headers are read."""

    message_id: str
    inbox_id: str
    thread_id: str
    direction: Direction
    subject: str
    folded_subject: str
    senders: tuple[NamedAddress, ...]
    to: tuple[NamedAddress, ...]
    cc: tuple[NamedAddress, ...]
    date: datetime
    size_bytes: int
    state: MessageState
    text: str = ""
    folded_text: str = ""
    files: tuple[tuple[str, str], ...] = ()
    has_attachment: bool = False
    auth: tuple[str, ...] = ()
    header_facts: HeaderFacts | None = None
    raw: str = ""
    number: int = field(default=0, compare=False)
    reply_to: tuple[str, ...] = ()
    """The addresses that a reply goes to instead of the sender."""

    @property
    def sender(self) -> str:
        """The address of the first sender, or an empty string."""
        return self.senders[0].address if self.senders else ""


OWN_MARK = "X-Postroom-Rule"
"""The signed header of mail that a rule sent (`mail.senders`)."""

PlanState = Literal["open", "applied", "undone"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A saved rule. `inboxes` are those it was created for, and the only ones on which it runs."""

    id: str
    name: str
    description: str
    enabled: bool
    position: int
    yaml: str
    created_at: datetime
    updated_at: datetime
    inboxes: View = field(metadata=INTERNAL)
    authority: str | None = field(default=None, metadata=INTERNAL)
    """The id of the key that created, enabled or moved it last; it has the rights of that key. None
    for a rule of a version that recorded no key."""
    warnings: tuple[str, ...] | None = None
    """Conditions that never match; reported when it is created."""
    made_for: View | None = field(default=None, metadata=INTERNAL)
    """The inboxes that it was created for, if some of them were removed since."""
    made_by: str | None = field(default=None, metadata=INTERNAL)
    """The id of the key that created it; None if it is the one of `authority`."""

    @property
    def visible_inboxes(self) -> View:
        """The rule is visible to callers who see all of these, also after removals."""
        return self.inboxes if self.made_for is None else self.made_for


def text_sha256(text: str) -> str:
    """A hash of a text; that of its text is the version of a rule."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class StoppedRule(NamedTuple):
    """A rule that is enabled and does nothing, and why."""

    id: str
    name: str
    reason: str


class Loss(NamedTuple):
    """How much of a kind an upgrade has dropped: rule jobs, or deliveries to a webhook."""

    kind: Literal["rule_job", "delivery"]
    subject: str
    lost: int


class Action(NamedTuple):
    """An action of a rule; `value` is the label, mailbox, address, text or webhook."""

    type: str
    value: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class PlanItem:
    """The effect of a plan on one message; `before` is its state when the plan was made."""

    message_id: str
    inbox_id: str
    subject: str
    sender: str
    date: datetime
    before: MessageState
    after: MessageState
    actions: tuple[Action, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a rule would do, without its messages, which are read in pages."""

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
    inboxes: View
    made_for: View | None = None
    """The inboxes that it was made for, if some of them were removed since."""
    authors: tuple[str, ...] = ()
    """The ids of the keys that made it and its rule."""

    @property
    def visible_inboxes(self) -> View:
        """The plan is visible to callers who see all of these, also after removals."""
        return self.inboxes if self.made_for is None else self.made_for


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
class RulePlan:
    """A plan of a rule in a list; `applied_by` is the id of a key, and `via` how it asked."""

    id: str
    rule_id: str | None
    name: str
    state: PlanState
    created_at: datetime
    expires_at: datetime
    """Until then it can be applied, or undone once it was."""
    applied_at: datetime | None
    total: int
    actions_by_type: dict[str, int]
    warnings: tuple[str, ...]
    max_messages: int
    can_undo: bool
    applied_by: str | None = None
    via: str | None = None


@dataclass(frozen=True, slots=True)
class PlanChanges:
    """A plan with one page of its messages, each before and after it."""

    plan: RulePlan
    items: Page[PlanItem]


class RuleDay(NamedTuple):
    """How many messages a rule has changed on one day as they arrived, and when last."""

    rule_id: str
    messages: int
    failed: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """What a rule does with an arriving message, besides changing its state.

    `caller` is who it acts for now: only webhooks visible to them are called. Rule jobs act for the
    key with the id `authority`.
    """

    rule_id: str
    rule_name: str
    actions: tuple[Action, ...]
    problems: tuple[str, ...] = ()
    caller: Caller = OWNER
    authority: str = OWNER.key_id
    authors: tuple[str, ...] = ()
    """The ids of the keys whose policies hold for its mail, besides `authority`."""
    visible_inboxes: View = EVERYTHING
    """The rule is known to callers who see all of these inboxes."""


@dataclass(frozen=True, slots=True)
class RuleJob:
    """A forward or a reply that a worker has claimed; `inbox` and `number` are row numbers.

    `authority` is the id of the key that it acts for.
    """

    inbox: int
    number: int
    id: str
    rule_id: str
    rule_name: str
    message_id: str
    inbox_id: str
    action: Action
    attempts: int
    holder: str
    authority: str
    authors: tuple[str, ...] = ()
    """The ids of the keys whose policies hold for its mail."""


SHOWN = {
    "apply_label": "label",
    "remove_label": "label",
    "move": "mailbox",
    "add_flag": "flag",
    "remove_flag": "flag",
    "forward": "to",
    "reply": "text",
    "webhook": "webhook",
    "remember": "text",
}
"""The name under which the value of an action is shown, and written in the flat form."""


def public_action(action: Action) -> dict[str, str]:
    """An action as callers see it."""
    value = {SHOWN[action.type]: action.value} if action.type in SHOWN else {}
    return {"type": action.type, **({"key": action.key} if action.key else {}), **value}


def restored_names(
    before: tuple[str, ...], after: tuple[str, ...], now: tuple[str, ...]
) -> tuple[tuple[str, ...], bool]:
    """The names that undoing a plan restores, and whether some were changed since."""
    was, left, present = ({n.casefold() for n in names} for names in (before, after, now))
    if left == present:
        return before, False
    added, removed = left - was, was - left
    kept = tuple(n for n in now if n.casefold() not in added)
    back = tuple(n for n in before if n.casefold() in removed - present)
    return (*kept, *back), not (added <= present and not removed & present)
