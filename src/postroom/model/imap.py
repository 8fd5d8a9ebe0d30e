"""Live IMAP: accounts, places on a server, and what a server says of its mail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Literal

MOST_UID = 2**32 - 1
MOST_MAILBOX_CHARS = 256


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

    @property
    def secure(self) -> bool:
        return self.security != "none"


@dataclass(frozen=True, slots=True)
class ImapTimeouts:
    """How long to wait for a server: to connect, for its greeting, and while it says nothing."""

    connect_s: float = 30.0
    greeting_s: float = 15.0
    socket_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ImapSettings:
    """The accounts that tools may work on live, and whether they may change anything there."""

    accounts: tuple[ImapAccount, ...] = ()
    is_write_enabled: bool = False
    timeouts: ImapTimeouts = field(default_factory=ImapTimeouts)


@dataclass(frozen=True, slots=True)
class ImapLocator:
    """A place on an IMAP server. As text, any mailbox name fits: only its ends are numbers."""

    account_id: str
    mailbox: str
    uidvalidity: int
    uid: int

    def __str__(self) -> str:
        return f"imap:{self.account_id}:{self.mailbox}:{self.uidvalidity}:{self.uid}"

    @classmethod
    def parse(cls, text: str) -> ImapLocator:
        """Read a place from its text. Raises ValueError."""
        prefix, _, rest = text.partition(":")
        account_id, _, rest = rest.partition(":")
        rest, _, uid = rest.rpartition(":")
        mailbox, _, uidvalidity = rest.rpartition(":")
        if prefix != "imap":
            raise ValueError(f"must start with imap: and not with {prefix[:20]!r}; {_WRITTEN}")
        if not account_id or not mailbox:
            raise ValueError(f"is not whole; {_WRITTEN}")
        return cls(account_id, mailbox, _number(uidvalidity), _number(uid))


_WRITTEN = "take the id as a search gave it, imap:{account}:{mailbox}:{uidvalidity}:{uid}"


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= MOST_UID):
        raise ValueError(f"must end in two whole numbers of 0 to {MOST_UID}; {_WRITTEN}")
    return int(text)


@dataclass(frozen=True, slots=True)
class ImapMailbox:
    """A mailbox that can be opened; `special_use` says what it is for, as `\\Sent`."""

    name: str
    delimiter: str | None = None
    special_use: str | None = None


@dataclass(frozen=True, slots=True)
class ImapCriteria:
    """What a live search asks for; dates are those of the arrival, *before* is not included."""

    query: str | None = None
    from_: str | None = None
    to: str | None = None
    subject: str | None = None
    unread_only: bool = False
    since: date | None = None
    before: date | None = None


@dataclass(frozen=True, slots=True)
class ImapNote:
    """Something odd about an answer of a server that a caller must know."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ImapFound:
    """How many messages match, and the newest of them; none if there are more than allowed."""

    uidvalidity: int
    total: int
    uids: tuple[int, ...] = ()
    notes: tuple[ImapNote, ...] = ()


@dataclass(frozen=True, slots=True)
class ImapSummary:
    """A message in a list, still as the server gave it. `text` is the beginning of the body."""

    uid: int
    flags: tuple[str, ...]
    arrived_at: datetime | None
    header: bytes
    preview: str | None = None
    text: bytes | None = None


@dataclass(frozen=True, slots=True)
class ImapPart:
    """A part of a message as the server describes it; `number` names it in a fetch.

    `size_bytes` counts it as it travels, before its transfer encoding is undone.
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
    """What a server says of a message; `structure` is missing if it made no sense."""

    flags: tuple[str, ...]
    arrived_at: datetime | None
    size_bytes: int
    header: bytes
    is_header_cut: bool
    structure: ImapPart | None


@dataclass(frozen=True, slots=True)
class ImapSection:
    """A stretch of a part; the part "" is the whole message."""

    number: str
    size_bytes: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ImapPieces:
    """Stretches of parts, and the sizes of others when decoded, as far as the server told."""

    sections: Mapping[ImapSection, bytes]
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImapCopyOf:
    """A message to be put elsewhere as it is."""

    raw: bytes
    flags: tuple[str, ...]
    arrived_at: datetime | None
