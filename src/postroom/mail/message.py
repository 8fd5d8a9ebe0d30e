"""What a mail says, as plain values: the result of parsing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

PARSER_VERSION = 1
"""Counts up when the same mail would be read otherwise than before."""

Role = Literal["from", "sender", "to", "cc", "bcc", "reply_to"]


@dataclass(frozen=True, slots=True)
class Address:
    """A name and an address, and the header they stood in."""

    role: Role
    name: str
    address: str


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

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class HiddenText:
    """Text that a reader of the mail would not see, and why. `excerpt` is its beginning."""

    reason: str
    excerpt: str
    chars: int


@dataclass(frozen=True, slots=True)
class Link:
    """A link of an HTML mail: where it says it goes, and where it goes."""

    text: str
    url: str
    picture: str = ""
    """What is said instead of its pictures, if it has no text."""


@dataclass(frozen=True, slots=True)
class Security:
    """What a careful reader would want to know before believing a mail."""

    hidden_text: tuple[HiddenText, ...] = ()
    remote_images: int = 0
    tracking_pixels: int = 0
    text_differs: bool = False
    lookalike: tuple[str, ...] = ()
    disguised_attachments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportRecipient:
    """What became of a mail for one of its recipients.

    `hard` means that the address is dead; a full mailbox or a refusal is not hard. `original` is
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
    """A mail that a machine wrote about another mail."""

    kind: Literal["delivery", "feedback", "disposition", "auto_reply"]
    recipients: tuple[ReportRecipient, ...] = ()
    original_message_id: str | None = None

    @property
    def hard(self) -> bool:
        """True if an address is dead."""
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
    """Everything we could read in a mail. What was odd about it is in `defects`."""

    subject: str
    addresses: tuple[Address, ...]
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
    protection: Literal["pgp-signed", "pgp-encrypted", "smime-signed", "smime-encrypted"] | None = (
        None
    )
    links: tuple[Link, ...] = ()

    @property
    def sender(self) -> Address | None:
        """Who wrote it: the first From, or the Sender if there is no From."""
        for role in ("from", "sender"):
            for address in self.addresses:
                if address.role == role:
                    return address
        return None

    def header(self, name: str) -> str | None:
        """The first header of this name, whatever its case."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)
