"""Results of live access to mailboxes, with issues for what failed."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from postroom.model.imap import ImapMailbox
from postroom.model.message import Header
from postroom.model.values import dataclass

Outcome = Literal["ok", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class Issue:
    """A failure on a live account; `code` is that of an error, or one of its own."""

    code: str
    stage: str
    message: str
    retryable: bool
    uid: int | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class LiveResult:
    """What every result reports."""

    status: Outcome
    issues: tuple[Issue, ...]


@dataclass(frozen=True, slots=True)
class AccountResult(LiveResult):
    """A result for one account."""

    account_id: str


@dataclass(frozen=True, slots=True)
class LiveServer:
    """The server of an account."""

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
    """The accounts; `status` and `issues` are set if some are missing."""

    accounts: tuple[LiveAccount, ...]
    status: Outcome | None = None
    issues: tuple[Issue, ...] | None = None


@dataclass(frozen=True, slots=True)
class Verification(AccountResult):
    """Whether the login of an account works, and the capabilities of its server."""

    ok: bool
    latency_ms: int
    server: LiveServer
    capabilities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiveMailboxes(AccountResult):
    """The mailboxes of an account."""

    mailboxes: tuple[ImapMailbox, ...]


@dataclass(frozen=True, slots=True)
class LiveHead:
    """The fields of every live message."""

    message_id: str
    mailbox: str
    uidvalidity: int
    uid: int
    date: datetime | None = None
    from_: str | None = None


@dataclass(frozen=True, slots=True)
class LiveRow(LiveHead):
    """A message in a live list."""

    subject: str | None = None
    flags: tuple[str, ...] | None = None
    snippet: str | None = None


@dataclass(frozen=True, slots=True)
class LiveSearch(AccountResult):
    """A page of a live search, newest first."""

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
    """An attachment of a live message; `part_id` identifies it on the server."""

    content_type: str
    size_bytes: int
    part_id: str
    filename: str | None = None
    extracted_text: str | None = None


@dataclass(frozen=True, slots=True)
class LiveMessage(LiveHead):
    """A live message, with the requested parts."""

    to: str | None = None
    cc: str | None = None
    subject: str | None = None
    flags: tuple[str, ...] | None = None
    headers: tuple[Header, ...] | None = None
    body_text: str | None = None
    body_html: str | None = None
    attachments: tuple[LiveAttachment, ...] | None = None


@dataclass(frozen=True, slots=True)
class LiveReading(AccountResult):
    """A live message, or the issues that prevented reading it."""

    message: LiveMessage | None


@dataclass(frozen=True, slots=True)
class LiveSource(AccountResult):
    """The source of a live message, from its first byte."""

    message_id: str
    size_bytes: int | None
    raw_source_base64: str | None
    raw_source_encoding: str | None


@dataclass(frozen=True, slots=True)
class LiveFlags(AccountResult):
    """The result of a change of flags; `flags` is null if they are unknown."""

    message_id: str
    flags: tuple[str, ...] | None
    requested_add_flags: tuple[str, ...]
    requested_remove_flags: tuple[str, ...]
    applied_add_flags: bool
    applied_remove_flags: bool


@dataclass(frozen=True, slots=True)
class LiveCopy(LiveResult):
    """The result of a copy."""

    source_account_id: str
    destination_account_id: str
    source_mailbox: str
    destination_mailbox: str
    message_id: str
    steps_attempted: int
    steps_succeeded: int
    new_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class LiveMove(AccountResult):
    """The result of a move."""

    source_mailbox: str
    destination_mailbox: str
    message_id: str
    steps_attempted: int
    steps_succeeded: int
    new_message_id: str | None = None


@dataclass(frozen=True, slots=True)
class LiveDeletion(AccountResult):
    """The result of a deletion."""

    mailbox: str
    message_id: str
    steps_attempted: int
    steps_succeeded: int
