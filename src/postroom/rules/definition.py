"""The rule language: fields, operators, actions, a rule as values; the rights that actions need.

Rights are checked when a caller creates, plans, applies, undoes, enables or moves a rule, and for
the key of the rule each time the rule runs.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from postroom.model.key import AGENT, ALL_SCOPES, OWNER, Caller, Scope
from postroom.model.memory import DEFAULT_NAMESPACE
from postroom.model.rule import Action, Rule
from postroom.model.view import EVERYTHING, NOTHING, View

FieldType = Literal["text", "names", "number", "moment", "boolean"]

FIELDS: dict[str, FieldType] = {
    "from": "text",
    "to": "text",
    "cc": "text",
    "subject": "text",
    "text": "text",
    "header.X": "text",
    "label": "names",
    "flag": "names",
    "mailbox": "names",
    "has_attachment": "boolean",
    "attachment.name": "text",
    "attachment.type": "text",
    "size_bytes": "number",
    "age_days": "number",
    "date": "moment",
    "list_id": "text",
    "auth": "text",
}
"""The fields of conditions. `header.X` is any header, such as `header.X-Priority`."""

OPERATORS: dict[FieldType, tuple[str, ...]] = {
    "text": ("equals", "contains", "matches", "regex", "in", "exists"),
    "names": ("equals", "contains", "matches", "regex", "in", "exists"),
    "number": ("equals", "greater_than", "less_than", "in", "exists"),
    "moment": ("after", "before"),
    "boolean": ("equals", "exists"),
}
"""The operators of each type of field; `not` can precede any of them."""

GROUPS = ("all", "any", "none", "not")

KEYS = (
    "version", "name", "description", "enabled", "inbox", "account", "when", "then", "safety",
)  # fmt: skip
"""The keys of a rule."""

FLAT_KEYS = ("conditions", "actions")
"""The keys that replace `when` and `then` in the flat form."""

SAFETY_KEYS = ("max_messages", "require_plan", "undo")


@dataclass(frozen=True, slots=True)
class ActionType:
    """An action: what it takes, under which names the flat form gives it, and what it does."""

    takes: str
    names: tuple[str, ...]
    does: str


ACTIONS: dict[str, ActionType] = {
    "apply_label": ActionType("a label", ("label",), "adds a label to the message"),
    "remove_label": ActionType("a label", ("label",), "removes a label"),
    "move": ActionType("a mailbox", ("mailbox", "destination", "to"), "moves it to a mailbox"),
    "mark_read": ActionType("", (), "sets the flag `seen`"),
    "mark_unread": ActionType("", (), "clears the flag `seen`"),
    "flag": ActionType("", (), "sets the flag `flagged`"),
    "unflag": ActionType("", (), "takes the flag `flagged` away"),
    "archive": ActionType("", (), "moves it to Archive"),
    "delete": ActionType("", (), "moves it to Trash"),
    "forward": ActionType("an address", ("to", "address"), "forwards it with its attachments"),
    "reply": ActionType(
        "a text", ("text", "body"), "replies to the sender, unless the mail is automatic"
    ),
    "webhook": ActionType("whk_… or a URL", ("webhook", "url"), "notifies a webhook"),
    "remember": ActionType("{key, text}", ("key", "text"), "stores a memory"),
    "stop": ActionType("", (), "stops: later rules do not run on the message"),
}
"""The actions of rules."""


def closest(word: str, known: Iterable[str]) -> str:
    """The most similar known word; empty if none is similar."""
    found = difflib.get_close_matches(word.lower()[:64], list(known), n=1)
    return found[0] if found else ""


MAX_PLANNED = 100_000
"""The maximum number of messages in a plan."""

Kind = Literal["all", "any", "none"]
Value = str | int | bool | tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field compared with one value. `finds` holds a pattern that was compiled once."""

    field: str
    operator: str
    value: Value
    finds: Callable[[str], bool] | None = dataclasses.field(default=None, compare=False, repr=False)
    line: int = dataclasses.field(default=0, compare=False, repr=False)
    """The line of its value in the text of the rule."""

    @property
    def values(self) -> tuple[str | int, ...]:
        return self.value if isinstance(self.value, tuple) else (self.value,)

    @property
    def needs_head(self) -> bool:
        return self.field == "list_id" or self.field.startswith("header.")


@dataclass(frozen=True, slots=True)
class Group:
    """Conditions of which all, any or none must hold."""

    kind: Kind
    parts: tuple[Condition, ...]

    @property
    def needs_head(self) -> bool:
        return any(part.needs_head for part in self.parts)


Condition = Comparison | Group


@dataclass(frozen=True, slots=True)
class Safety:
    """The limits of a rule."""

    max_messages: int = 1000
    require_plan: bool = False
    undo: bool = True


@dataclass(frozen=True, slots=True)
class Definition:
    """A rule that was parsed."""

    name: str
    when: Condition
    then: tuple[Action, ...]
    description: str = ""
    enabled: bool = True
    inbox: str | None = None
    account: str | None = None
    safety: Safety = Safety()

    @property
    def sends_mail(self) -> bool:
        """Whether it forwards or replies."""
        return any(action.type in ("forward", "reply") for action in self.then)

    def tests(self) -> Iterator[Comparison]:
        """Every comparison in it, however deep."""
        return tests_of(self.when)

    def uses(self, action_type: str) -> bool:
        return any(action.type == action_type for action in self.then)


def tests_of(condition: Condition) -> Iterator[Comparison]:
    """Every comparison in a condition, however deep."""
    if isinstance(condition, Comparison):
        yield condition
        return
    for part in condition.parts:
        yield from tests_of(part)


def required_parts(group: Group) -> Iterator[Condition]:
    """The parts of a group of which all must hold, with those of such groups inside of it."""
    for part in group.parts:
        if isinstance(part, Group) and part.kind == "all":
            yield from required_parts(part)
        else:
            yield part


_SCOPES = {"forward": Scope.SEND, "reply": Scope.SEND, "webhook": Scope.ADMIN, "stop": None}
"""Every other action needs `write`."""

_DISCLOSES_MAIL = frozenset({"forward", "webhook"})
"""Actions that disclose mail to others, so they also need `read`."""

_NOT_UNDONE = frozenset({"webhook", "remember", "stop"})
"""Actions that undoing a plan does not revert."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What an action needs: a scope, a namespace of memories, a webhook that may be seen.

    An action that `discloses_mail` also needs the scope `read`: otherwise a caller who may not
    read mail could have it sent to them.
    """

    scope: Scope | None
    discloses_mail: bool = False
    namespace: str | None = None
    webhook: str | None = None


def rights_for(action: Action) -> Rights:
    """The rights that an action needs."""
    is_webhook = action.type == "webhook" and action.value.startswith("whk_")
    return Rights(
        scope=_SCOPES.get(action.type, Scope.WRITE),
        discloses_mail=action.type in _DISCLOSES_MAIL,
        namespace=DEFAULT_NAMESPACE if action.type == "remember" else None,
        webhook=action.value if is_webhook else None,
    )


def rights_to_undo(action: Action) -> Rights:
    """The rights to undo an action: none if it is not reverted."""
    return Rights(None) if action.type in _NOT_UNDONE else rights_for(action)


def missing_right(caller: Caller, rights: Rights) -> str:
    """What a caller lacks to do an action; empty if nothing. The store checks the webhook."""
    if rights.scope is not None and rights.scope not in caller.scopes:
        return f"needs a key with the scope {rights.scope}"
    if rights.discloses_mail and Scope.READ not in caller.scopes:
        return "needs a key with the scope read, because it sends mail to others"
    if rights.namespace is not None and not caller.namespaces.sees(rights.namespace):
        return f"needs a key that may write to the namespace {rights.namespace}"
    return ""


def is_unlimited(caller: Caller) -> bool:
    """Whether a caller may do everything everywhere."""
    limits = (caller.inboxes, caller.accounts, caller.namespaces)
    return caller.scopes >= ALL_SCOPES and all(limit == EVERYTHING for limit in limits)


def authority_of(caller: Caller) -> str:
    """The id of the key of a caller's rules: the owner's for an unlimited caller without a key."""
    return OWNER.key_id if caller.secret_hash is None and is_unlimited(caller) else caller.key_id


def recorded_authority(caller: Caller) -> str:
    """The id of the key that is recorded with a rule of this caller.

    The agent without a key has the owner's rights, but its own rate limits.
    """
    return AGENT.key_id if caller.key_id == AGENT.key_id else authority_of(caller)


NO_AUTHORITY = ""
"""The authority of a rule of an older version whose key is not recorded."""


def authority_of_rule(rule: Rule) -> str:
    return NO_AUTHORITY if rule.authority is None else rule.authority


def rule_caller(authority: str, inboxes: View, callers: Mapping[str, Caller]) -> Caller | None:
    """The caller of a rule, by the keys that exist; None if its key has ended.

    A rule without a recorded key acts for its own inboxes, and stores no memories.
    """
    if authority == NO_AUTHORITY:
        return Caller(NO_AUTHORITY, inboxes=inboxes, accounts=NOTHING, namespaces=NOTHING)
    return OWNER if authority == OWNER.key_id else callers.get(authority)


def refusal(caller: Caller | None, action: Action, inbox_id: str) -> str:
    """Why a rule may not do an action for this caller in this inbox; empty if it may."""
    if caller is None:
        return "the key of the rule was revoked or has expired"
    if not caller.inboxes.sees(inbox_id):
        return "the key of the rule may not see this inbox"
    what = missing_right(caller, rights_for(action))
    return what and f"{action.type}: this {what}, unlike the key of the rule"


def permitted_actions(
    definition: Definition, caller: Caller | None, inbox_id: str
) -> tuple[Definition, tuple[str, ...]]:
    """A rule with the actions that it may do now, and the reasons for the others."""
    if caller is OWNER:
        return definition, ()
    refused = {action: refusal(caller, action, inbox_id) for action in definition.then}
    allowed = tuple(action for action in definition.then if not refused[action])
    return replace(definition, then=allowed), with_advice(refused.values())


def with_advice(refusals: Iterable[str]) -> tuple[str, ...]:
    """Each refusal once, with advice."""
    fix = (
        "enable the rule with a key that has the rights (`postroom rule update ID --enabled`, or "
        "PATCH /v1/rules/ID), and it is a rule of that key"
    )
    return tuple(f"{why}; {fix}" for why in dict.fromkeys(refusals) if why)
