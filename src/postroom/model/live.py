"""Answers from live mailboxes: what was got, and what was not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from postroom.model.imap import ImapMailbox
from postroom.model.message import Header

Outcome = Literal["ok", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class Issue:
    """Something that did not work, and where; `code` is our kind of error or a word of its own."""

    code: str
    stage: str
    message: str
    retryable: bool
    uid: int | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class LiveServer:
    """Where an account is."""

    host: str
    port: int
    secure: bool


@dataclass(frozen=True, slots=True)
class LiveAccount:
    """An account without its secrets."""

    account_id: str
    host: str
    port: int
    secure: bool


@dataclass(frozen=True, slots=True)
class LiveAccounts:
    """The accounts there are; how it went is only told when some are left out."""

    accounts: tuple[LiveAccount, ...]
    status: Outcome | None = None
    issues: tuple[Issue, ...] | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether an account can be reached and entered, and what its server can do."""

    status: Outcome
    issues: tuple[Issue, ...]
    account_id: str
    ok: bool
    latency_ms: int
    server: LiveServer
    capabilities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiveMailboxes:
    """The mailboxes of an account."""

    status: Outcome
    issues: tuple[Issue, ...]
    account_id: str
    mailboxes: tuple[ImapMailbox, ...]


@dataclass(frozen=True, slots=True)
class LiveRow:
    """A message in a live list."""

    message_id: str
    mailbox: str
    uidvalidity: int
    uid: int
    date: datetime | None = None
    from_: str | None = None
    subject: str | None = None
    flags: tuple[str, ...] | None = None
    snippet: str | None = None


@dataclass(frozen=True, slots=True)
class LiveSearch:
    """A page of a live search, newest first."""

    status: Outcome
    issues: tuple[Issue, ...]
    account_id: str
    mailbox: str
    total: int
    attempted: int
    returned: int
    failed: int
    messages: tuple[LiveRow, ...]
    has_more: bool
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class LiveAttachment:
    """A file of a live message; `part_id` names it on its server."""

    content_type: str
    size_bytes: int
    part_id: str
    filename: str | None = None
    extracted_text: str | None = None


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """A live message, as far as it was asked for."""

    message_id: str
    mailbox: str
    uidvalidity: int
    uid: int
    date: datetime | None = None
    from_: str | None = None
    to: str | None = None
    cc: str | None = None
    subject: str | None = None
    flags: tuple[str, ...] | None = None
    headers: tuple[Header, ...] | None = None
    body_text: str | None = None
    body_html: str | None = None
    attachments: tuple[LiveAttachment, ...] | None = None


@dataclass(frozen=True, slots=True)
class LiveReading:
    """A live message, or why there is none."""

    status: Outcome
    issues: tuple[Issue, ...]
    account_id: str
    message: LiveMessage | None


@dataclass(frozen=True, slots=True)
class LiveSource:
    """The source of a live message, byte for byte from its beginning."""

    status: Outcome
    issues: tuple[Issue, ...]
    account_id: str
    message_id: str
    size_bytes: int | None
    raw_source_base64: str | None
    raw_source_encoding: str | None


@dataclass(frozen=True, slots=True)
class LiveFlags:
    """What became of flags; `flags` is null if nobody knows."""

    status: Outcome
    issues: tuple[Issue, ...]
    account_id: str
    message_id: str
    flags: tuple[str, ...] | None
    requested_add_flags: tuple[str, ...]
    requested_remove_flags: tuple[str, ...]
    applied_add_flags: bool
    applied_remove_flags: bool


@dataclass(frozen=True, slots=True)
class LiveCopy:
    """What became of a copy."""

    status: Outcome
    issues: tuple[Issue, ...]
    source_account_id: str
    destination_account_id: str
    source_mailbox: str
    destination_mailbox: str
    message_id: str
    steps_attempted: int
    steps_succeeded: int
    new_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class LiveMove:
    """What became of a move."""

    status: Outcome
    issues: tuple[Issue, ...]
    account_id: str
    source_mailbox: str
    destination_mailbox: str
    message_id: str
    steps_attempted: int
    steps_succeeded: int
    new_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class LiveDeletion:
    """What became of a deletion."""

    status: Outcome
    issues: tuple[Issue, ...]
    account_id: str
    mailbox: str
    message_id: str
    steps_attempted: int
    steps_succeeded: int
