"""The rule language: fields, operators, actions, and a rule as values."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from postroom.model.rule import Action

Sort = Literal["text", "names", "number", "moment", "truth"]

FIELDS: dict[str, Sort] = {
    "from": "text",
    "to": "text",
    "cc": "text",
    "subject": "text",
    "text": "text",
    "header.X": "text",
    "label": "names",
    "flag": "names",
    "mailbox": "names",
    "has_attachment": "truth",
    "attachment.name": "text",
    "attachment.type": "text",
    "size_bytes": "number",
    "age_days": "number",
    "date": "moment",
    "list_id": "text",
    "auth": "text",
}
"""The fields of conditions. `header.X` is any header, such as `header.X-Priority`."""

OPERATORS: dict[Sort, tuple[str, ...]] = {
    "text": ("equals", "contains", "matches", "regex", "in", "exists"),
    "names": ("equals", "contains", "matches", "regex", "in", "exists"),
    "number": ("equals", "greater_than", "less_than", "in", "exists"),
    "moment": ("after", "before"),
    "truth": ("equals", "exists"),
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
    "apply_label": ActionType("a label", ("label",), "puts a label on the message"),
    "remove_label": ActionType("a label", ("label",), "takes a label off"),
    "move": ActionType("a mailbox", ("mailbox", "destination", "to"), "moves it to a mailbox"),
    "mark_read": ActionType("", (), "sets the flag `seen`"),
    "mark_unread": ActionType("", (), "takes the flag `seen` away"),
    "flag": ActionType("", (), "sets the flag `flagged`"),
    "unflag": ActionType("", (), "takes the flag `flagged` away"),
    "archive": ActionType("", (), "moves it to Archive"),
    "delete": ActionType("", (), "moves it to Trash"),
    "forward": ActionType("an address", ("to", "address"), "sends it on, with its attachments"),
    "reply": ActionType("a text", ("text", "body"), "answers the sender, if a person wrote it"),
    "webhook": ActionType("whk_… or a URL", ("webhook", "url"), "tells a webhook of it"),
    "remember": ActionType("{key, text}", ("key", "text"), "keeps a memory"),
    "stop": ActionType("", (), "ends the chain: no later rule sees the message"),
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
        """Whether it has an action of this type."""
        return any(action.type == action_type for action in self.then)


def tests_of(condition: Condition) -> Iterator[Comparison]:
    """Every comparison in a condition, however deep."""
    if isinstance(condition, Comparison):
        yield condition
        return
    for part in condition.parts:
        yield from tests_of(part)
