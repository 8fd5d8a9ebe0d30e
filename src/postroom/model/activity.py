"""What happened per day: mail in and out, rules, and calls of tools."""

from __future__ import annotations

from datetime import date
from typing import Literal, NamedTuple

from postroom.model.values import dataclass

Counted = Literal["received", "sent", "held", "rules"]
"""What is counted per inbox: mail that arrived; mail that was sent, and how much of it was held;
how often a rule was applied to a message."""

KEPT_DAYS = 92
"""How long the counts of a day are kept."""


class MailCount(NamedTuple):
    """So many of one kind on a day; `via` says how it was asked for."""

    day: date
    name: str
    via: str
    number: int


class CallCount(NamedTuple):
    """How often a caller called a tool on a day, and how often that ended with an error."""

    day: date
    caller: str
    via: str
    tool: str
    calls: int
    errors: int


@dataclass(frozen=True, slots=True)
class DayActivity:
    """What happened on a day, in UTC. `held` is the part of the sent mail that was held first."""

    day: date
    received: int = 0
    sent_by_agents: int = 0
    sent_by_people: int = 0
    sent_by_rules: int = 0
    held: int = 0
    rules: int = 0
    tool_calls: int = 0
    tool_errors: int = 0

    @property
    def sent(self) -> int:
        return self.sent_by_agents + self.sent_by_people + self.sent_by_rules


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How often a tool was called."""

    tool: str
    calls: int
    errors: int


@dataclass(frozen=True, slots=True)
class Activity:
    """What happened, oldest day first, and the tools that were called most."""

    days: tuple[DayActivity, ...]
    tools: tuple[ToolUse, ...]

    def total(self, name: str) -> int:
        """The sum over all days."""
        return sum(getattr(day, name) for day in self.days)
