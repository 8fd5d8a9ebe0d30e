"""A rule as values: what it looks for, what it does, and how far it may go."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

MOST_PLANNED = 100_000
"""How many messages a plan may hold."""

Kind = Literal["all", "any", "none"]
Value = str | int | bool | tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field compared with one value. `finds` holds a pattern that was compiled once."""

    field: str
    operator: str
    value: Value
    finds: Callable[[str], bool] | None = dataclasses.field(default=None, compare=False, repr=False)

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
class Action:
    """What is done with a message; `value` is the label, mailbox, address, text or webhook."""

    type: str
    value: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Safety:
    """How far a rule may go."""

    max_messages: int = 1000
    require_plan: bool = False
    undo: bool = True


@dataclass(frozen=True, slots=True)
class Definition:
    """A rule that was read and found to be right."""

    name: str
    when: Condition
    then: tuple[Action, ...]
    description: str = ""
    enabled: bool = True
    inbox: str | None = None
    account: str | None = None
    safety: Safety = Safety()

    @property
    def leaves_the_house(self) -> bool:
        """Whether it writes to somebody."""
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
