"""A conversation within one inbox."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from postroom.model.memory import RecalledMemory
from postroom.model.message import ThreadMessage


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread in a list."""

    id: str
    inbox_id: str
    subject: str
    participants: tuple[str, ...]
    message_count: int
    first_date: datetime
    last_date: datetime
    labels: tuple[str, ...]
    snippet: str


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread with its newest messages, oldest of them first."""

    id: str
    inbox_id: str
    subject: str
    participants: tuple[str, ...]
    message_count: int
    first_date: datetime
    last_date: datetime
    labels: tuple[str, ...]
    messages: tuple[ThreadMessage, ...]
    has_more: bool
    memories: tuple[RecalledMemory, ...] | None = None
