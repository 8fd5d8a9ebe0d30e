"""What happened, in the order in which it was committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from postroom.model.inbox import Visible
from postroom.model.message import INTERNAL, Message
from postroom.model.page import Slice

EventType = Literal[
    "message.received",
    "message.scheduled",
    "message.queued",
    "message.sent",
    "message.delivered",
    "message.captured",
    "message.deferred",
    "message.bounced",
    "message.failed",
    "message.unknown",
    "message.refused",
    "rule.matched",
    "rule.failed",
]

FIRST = "evt_0"
"""Stands for the time before any event."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a message, written in the transaction that made it happen."""

    id: str
    type: str
    at: datetime
    inbox_id: str
    thread_id: str | None = None
    message_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    number: int = field(default=0, metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events, oldest first; what is given must all hold."""

    visible: Visible = None
    inbox_id: str | None = None
    message_id: str | None = None
    types: tuple[str, ...] = ()
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class EventStream:
    """Events as they happen; None says that nothing did for a while."""

    events: AsyncIterator[Event | None]


@dataclass(frozen=True, slots=True)
class Waited:
    """The message that was waited for, or where to go on waiting."""

    message: Message | None
    timed_out: bool
    extracted: str | None = None
    since: str | None = None
