"""IMAP: accounts, locators, data as servers report it, and results of live access with issues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import date, datetime
from pathlib import Path
from typing import Literal

from postroom.model.account import ANY_NETWORK, NetworkPolicy
from postroom.model.mail.message import Header
from postroom.model.values import dataclass

MAX_UID = 2**32 - 1
MAX_MAILBOX_CHARS = 256


@dataclass(frozen=True, slots=True)
class ImapAccount:
    """A login at an IMAP server. `secret` is the password, or the token of `xoauth2`."""

    account_id: str
    host: str
    user: str = field(repr=False)
    secret: str = field(repr=False)
    port: int = 993
    security: Literal["tls", "starttls", "none"] = "tls"
    auth: Literal["login", "xoauth2"] = "login"
    ca_file: Path | None = None
    is_unverified: bool = False
    network_policy: NetworkPolicy = ANY_NETWORK

    @property
    def secure(self) -> bool:
        return self.security != "none"


@dataclass(frozen=True, slots=True)
class ImapTimeouts:
    """Timeouts of a server: to connect, for its greeting, and for silence."""

    connect_s: float = 30.0
    greeting_s: float = 15.0
    socket_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ImapSettings:
    """The accounts with live access, and whether tools may change mail there."""

    accounts: tuple[ImapAccount, ...] = ()
    is_write_enabled: bool = False
    timeouts: ImapTimeouts = field(default_factory=ImapTimeouts)


@dataclass(frozen=True, slots=True)
class ImapLocator:
    """A message on an IMAP server; in its text form the mailbox may contain colons."""

    account_id: str
    mailbox: str
    uidvalidity: int
    uid: int

    def __str__(self) -> str:
        return f"imap:{self.account_id}:{self.mailbox}:{self.uidvalidity}:{self.uid}"

    @classmethod
    def parse(cls, text: str) -> ImapLocator:
        """Parse the text form. Raises ValueError."""
        prefix, _, rest = text.partition(":")
        account_id, _, rest = rest.partition(":")
        rest, _, uid = rest.rpartition(":")
        mailbox, _, uidvalidity = rest.rpartition(":")
        if prefix != "imap":
            raise ValueError(f"must start with imap: and not with {prefix[:20]!r}; {_FORM}")
        if not account_id or not mailbox:
            raise ValueError(f"is incomplete; {_FORM}")
        return cls(account_id, mailbox, _number(uidvalidity), _number(uid))


_FORM = "use an id as a search returns it, imap:{account}:{mailbox}:{uidvalidity}:{uid}"


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MAX_UID):
        raise ValueError(f"must end in two whole numbers from 0 to {MAX_UID}; {_FORM}")
    return int(text)


@dataclass(frozen=True, slots=True)
class ImapMailbox:
    """A mailbox that can be opened; `special_use` is an attribute such as `\\Sent`."""

    name: str
    delimiter: str | None = None
    special_use: str | None = None


@dataclass(frozen=True, slots=True)
class ImapCriteria:
    """Criteria of a live search; dates are those of arrival, `before` is exclusive."""

    query: str | None = None
    from_: str | None = None
    to: str | None = None
    subject: str | None = None
    unread_only: bool = False
    since: date | None = None
    before: date | None = None


@dataclass(frozen=True, slots=True)
class ImapNote:
    """A note on a response of the server, for the caller."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ImapFound:
    """The number of matches and the newest UIDs; no UIDs if there are too many matches."""

    uidvalidity: int
    total: int
    uids: tuple[int, ...] = ()
    notes: tuple[ImapNote, ...] = ()


@dataclass(frozen=True, slots=True)
class ImapSummary:
    """A message in a list, not decoded. `text` is the start of the body."""

    uid: int
    flags: tuple[str, ...]
    arrived_at: datetime | None
    header: bytes
    preview: str | None = None
    text: bytes | None = None


@dataclass(frozen=True, slots=True)
class ImapPart:
    """A part in a BODYSTRUCTURE; `number` names it in FETCH.

    `size_bytes` is its size in the transfer encoding.
    """

    number: str
    content_type: str
    parameters: tuple[tuple[str, str], ...] = ()
    encoding: str = ""
    size_bytes: int = 0
    disposition: str = ""
    disposition_parameters: tuple[tuple[str, str], ...] = ()
    content_id: str = ""
    children: tuple[ImapPart, ...] = ()
    message: ImapPart | None = None
    heading: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ImapDescription:
    """A message without its content; `structure` is None if it is invalid."""

    flags: tuple[str, ...]
    arrived_at: datetime | None
    size_bytes: int
    header: bytes
    is_header_cut: bool
    structure: ImapPart | None


@dataclass(frozen=True, slots=True)
class ImapSection:
    """A range of a part; the part "" is the whole message."""

    number: str
    size_bytes: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ImapPieces:
    """Ranges of parts, and decoded sizes of parts, as far as the server reports them."""

    sections: Mapping[ImapSection, bytes]
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImapCopyOf:
    """A whole message, to be appended to another mailbox."""

    raw: bytes
    flags: tuple[str, ...]
    arrived_at: datetime | None


Outcome = Literal["ok", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class Issue:
    """A failure on a live account; `code` is that of an error, or a code of live access."""

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
