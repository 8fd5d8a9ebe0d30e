"""What a mail says, as plain values: the result of parsing."""

from __future__ import annotations

import hashlib
from dataclasses import field
from datetime import datetime
from typing import Literal

from postroom.model.message import AddressLine
from postroom.model.values import dataclass

Protection = Literal["pgp-signed", "pgp-encrypted", "smime-signed", "smime-encrypted"]
PARSER_VERSION = 3
"""Increased whenever the parser would give another result for the same mail."""


@dataclass(frozen=True, slots=True)
class ParsedAttachment:
    """A file that came with a message, decoded.

    `content_type` is what the sender claims, `detected_type` what the bytes look like.
    """

    filename: str
    content_type: str
    detected_type: str
    content: bytes
    inline: bool = False
    content_id: str | None = None
    charset: str = ""
    """The declared charset; empty if there is none."""

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class HiddenText:
    """Text that a reader of the mail would not see, and why.

    Not the words: they were hidden so that only a machine reads them. `sha256` is theirs, so that
    the same words are known again; `count` is how often they stand there.
    """

    reason: str
    sha256: str
    chars: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Link:
    """A link of an HTML mail: where it says it goes, and where it goes."""

    text: str
    url: str
    picture: str = ""
    """The alternative text of its images, if it has no text."""


@dataclass(frozen=True, slots=True)
class Security:
    """Findings about a mail that its reader should know before trusting it."""

    hidden_text: tuple[HiddenText, ...] = ()
    hidden_text_total: int = 0
    """The number of pieces found, if `hidden_text` does not list all of them."""
    remote_images: int = 0
    tracking_pixels: int = 0
    text_differs: bool = False
    lookalike: tuple[str, ...] = ()
    disguised_attachments: tuple[str, ...] = ()
    removed_characters: dict[str, int] = field(default_factory=dict)
    """The number of invisible characters removed, by kind."""


@dataclass(frozen=True, slots=True)
class ReportRecipient:
    """The outcome of a mail for one recipient.

    `hard` means that the address does not exist; a full mailbox is not hard. `original` is
    the address that the sender wrote, if the report says that it was another.
    """

    address: str
    action: str
    status: str
    diagnostic: str
    reason: str
    hard: bool
    original: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A delivery report: a mail that a program wrote about another mail."""

    kind: Literal["delivery", "feedback", "disposition", "auto_reply"]
    recipients: tuple[ReportRecipient, ...] = ()
    original_message_id: str | None = None

    @property
    def hard(self) -> bool:
        """Whether an address is known not to exist."""
        return any(recipient.hard for recipient in self.recipients)


@dataclass(frozen=True, slots=True)
class Invitation:
    """A meeting in a text/calendar part; times as the calendar writes them."""

    method: str
    uid: str
    summary: str
    location: str
    organizer: str
    start: str
    end: str
    attendees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A parsed mail. Deviations from the standards are listed in `defects`."""

    subject: str
    addresses: tuple[AddressLine, ...]
    date: datetime | None
    internet_message_id: str | None
    in_reply_to: str | None
    references: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]
    text: str
    new_text: str
    quoted_text: str
    signature: str
    snippet: str
    html: str | None
    attachments: tuple[ParsedAttachment, ...]
    defects: tuple[str, ...]
    size_bytes: int
    security: Security = Security()
    auto_submitted: bool = False
    list_id: str | None = None
    list_unsubscribe: tuple[str, ...] = ()
    report: Report | None = None
    invitation: Invitation | None = None
    protection: Protection | None = None
    links: tuple[Link, ...] = ()

    @property
    def sender(self) -> AddressLine | None:
        """The author: the first From address, or the Sender if there is no From with one."""
        lines = [
            line for role in ("from", "sender") for line in self.addresses if line.role == role
        ]
        return next((line for line in lines if "@" in line.address), lines[0] if lines else None)

    def header(self, name: str) -> str | None:
        """The first header of this name, whatever its case."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)


def fingerprint(parsed: ParsedMessage) -> bytes:
    """A hash over from, date, subject, bodies and attachments: what the reader gets.

    Headers that grow on the way (Received, DKIM…) are left out, so that one mail that came
    by two routes has one fingerprint.
    """
    digest = hashlib.sha256()
    sender = [f"{a.name}\0{a.address.lower()}" for a in parsed.addresses if a.role == "from"]
    date = parsed.date.isoformat() if parsed.date else ""
    for piece in (*sender, date, parsed.subject, parsed.text, parsed.html or ""):
        data = piece.encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    for attachment in parsed.attachments:
        name = attachment.filename.encode()
        digest.update(b"%d:%d:" % (len(name), attachment.size))
        digest.update(name)
        digest.update(attachment.content)
    return digest.digest()
