"""The health of an installation (checks, queues, sizes, processes), and what happened per day."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal, NamedTuple

from postroom.model.values import dataclass


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check. A warning or problem has a fix."""

    check: str
    status: Literal["ok", "warning", "problem"]
    detail: str
    fix: str = ""


def ok(check: str, detail: str) -> CheckResult:
    """There is nothing to do."""
    return CheckResult(check, "ok", detail)


def warning(check: str, detail: str, fix: str) -> CheckResult:
    """It works, but not as it should."""
    return CheckResult(check, "warning", detail, fix)


def problem(check: str, detail: str, fix: str) -> CheckResult:
    """Something does not work."""
    return CheckResult(check, "problem", detail, fix)


@dataclass(frozen=True, slots=True)
class QueueLength:
    """How much waits in a queue; `is_more` if counting stopped there."""

    name: str
    waiting: int
    is_more: bool = False


@dataclass(frozen=True, slots=True)
class StorageSizes:
    """How large the installation is; `blob_bytes` is an estimate, and None where it has none."""

    database: str
    database_bytes: int
    index_bytes: int
    messages: int
    blob_bytes: int | None = None
    blob_place: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of a process to do a piece of work until a time."""

    name: str
    holder: str
    until: datetime


@dataclass(frozen=True, slots=True)
class FailureCount:
    """How often something failed since the server started."""

    name: str
    count: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Load:
    """What waits, what fails, and how much space is left."""

    queues: tuple[QueueLength, ...]
    failures: tuple[FailureCount, ...]
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class Health:
    """The findings of all checks, and what the running server knows of itself."""

    version: str
    python: str
    started_at: datetime
    findings: tuple[CheckResult, ...]
    sizes: StorageSizes
    load: Load
    leases: tuple[Lease, ...]


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
