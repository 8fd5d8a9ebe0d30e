"""Audit entries, chained by HMAC so that edits are detected."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import Any, Literal

from postroom.model.inbox import Visible
from postroom.model.memory import Namespaces
from postroom.model.page import Slice
from postroom.model.values import dataclass

Via = Literal["rest", "mcp", "mcp-stdio", "cli", "web", "smtp", "rule", "sync"]
"""How an act was asked for."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Who acts and how; it is stored with the changes. `namespace` is that of a changed memory.

    Without `via`, an entry has that of the store which writes it.
    """

    actor: str
    action: str
    at: datetime
    targets: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    namespace: str | None = None
    via: Via | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One effect. `hash` depends on the entry, on all before it and on a key we keep elsewhere.

    `via` is null in entries of versions before schema 41.
    """

    id: str
    at: datetime
    actor: str
    via: str | None
    action: str
    target: str
    details: dict[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A query for entries, newest first; all conditions must hold."""

    visible: Visible
    namespaces: Namespaces
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    via: str | None = None
    after_date: datetime | None = None
    before_date: datetime | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """The result of a verification of the audit log; `is_complete` if it reached the end."""

    entries: int
    problems: tuple[str, ...]
    is_complete: bool = True

    @property
    def is_whole(self) -> bool:
        return not self.problems
