"""Who did what: entries of a log that cannot be edited quietly."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postroom.model.inbox import Visible
from postroom.model.memory import Namespaces
from postroom.model.page import Slice


@dataclass(frozen=True, slots=True)
class Deed:
    """Who acts now, and how: what is written down with everything that this changes.

    `namespace` is that of the memory which it is done to.
    """

    actor: str
    action: str
    at: datetime
    targets: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One effect. `hash` depends on the entry, on all before it and on a key we keep elsewhere."""

    id: str
    at: datetime
    actor: str
    action: str
    target: str
    details: dict[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """Which entries, newest first; what is given must all hold."""

    visible: Visible = None
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    namespaces: Namespaces = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """Whether the log is whole."""

    entries: int
    problems: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return not self.problems
