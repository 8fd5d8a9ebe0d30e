"""Short shapes for an agent: what an answer needs, and otherwise only what is unusual."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import Any

from postroom.model.mail.message import INTERNAL
from postroom.model.values import dataclass


@dataclass(frozen=True, slots=True)
class FileLine:
    """An attachment in short."""

    id: str | None = None
    """None if it was uploaded to a draft."""
    filename: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class MailLine:
    """A message in short. `to` and `status` are there for outgoing mail.

    `text` is what the writer wrote; `quoted_chars` counts what they quoted and is left out.
    """

    id: str
    from_: str | None = None
    subject: str | None = None
    date: datetime | None = None
    snippet: str | None = None
    to: tuple[str, ...] | None = None
    cc: tuple[str, ...] | None = None
    bcc: tuple[str, ...] | None = None
    thread_id: str | None = None
    inbox: str | None = None
    mailbox: str | None = None
    labels: tuple[str, ...] | None = None
    unread: bool | None = None
    flagged: bool | None = None
    status: str | None = None
    send_at: datetime | None = None
    warnings: tuple[str, ...] | None = None
    attachments: tuple[FileLine, ...] | None = None
    unsubscribe: str | None = None
    text: str | None = None
    quoted_chars: int | None = None
    next_offset: int | None = None
    findings: tuple[str, ...] = field(default=(), metadata=INTERNAL)
    """What makes it suspicious."""


@dataclass(frozen=True, slots=True)
class FoundMail:
    """One page of found mail; `inbox` if all of it is in one of several inboxes."""

    total: int
    results: tuple[MailLine, ...]
    inbox: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadText:
    """A thread, oldest message first."""

    id: str
    subject: str
    messages: tuple[MailLine, ...]
    earlier: int | None = None
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of an attachment."""

    id: str
    filename: str
    text: str
    next_offset: int | None = None
    warnings: tuple[str, ...] | None = None
    message_id: str = field(default="", metadata=INTERNAL)
    security: dict[str, Any] | None = field(default=None, metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class NotRead:
    """An id that could not be read, and why."""

    id: str
    error: str


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What was read, in the order of the ids."""

    results: tuple[MailLine | ThreadText | FileText | NotRead, ...]


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """The outcome for an outgoing mail or a draft."""

    id: str
    status: str
    send_at: datetime | None = None
    failed: tuple[str, ...] | None = None
    note: str | None = None
    deduplicated: bool | None = None
    warnings: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class SendOutcomes:
    """The outcomes for several mails, in the order of their ids."""

    results: tuple[SendOutcome, ...]


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """A memory in short."""

    key: str
    text: str
    updated_at: datetime
    trust: str
    tags: tuple[str, ...] | None = None
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryOutcome:
    """The outcome of a change of a memory."""

    key: str
    status: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class RecallResult:
    """Memories, the most relevant first."""

    results: tuple[MemoryLine, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class MailboxLine:
    """A mailbox and what is in it."""

    name: str
    total: int
    unread: int | None = None
    inbox: str | None = None


@dataclass(frozen=True, slots=True)
class Mailboxes:
    """The mailboxes and labels of a caller, and the addresses of their inboxes."""

    mailboxes: tuple[MailboxLine, ...]
    labels: tuple[MailboxLine, ...] | None = None
    inboxes: tuple[str, ...] = ()
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class AgentWaitResult:
    """A mail that was waited for; nothing if the time was over."""

    message: MailLine | None
    timed_out: bool
    extracted: str | None = None
    since: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """What a change did, or, with `plan_id`, would do."""

    status: str
    changed: int
    undo_id: str | None = None
    failed: tuple[NotRead, ...] | None = None
    plan_id: str | None = None
    rule_id: str | None = None
    first: tuple[MailLine, ...] | None = None
    note: str | None = None
