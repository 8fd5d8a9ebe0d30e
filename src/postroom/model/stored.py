"""What goes into the store: new messages, and questions about those that are there."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postroom.model.attachment import BlobKey
from postroom.model.inbox import Visible
from postroom.model.message import AddressLine, Direction, Recipient
from postroom.model.page import Slice
from postroom.model.rule import RuleEffect

FIELD_BORDER = "\x1f"
"""Between the folded fields of a message: white space, so folding never leaves one inside."""


@dataclass(frozen=True, slots=True)
class NewAttachment:
    """A file of a message that is about to be stored; its bytes are in the blob store already."""

    id: str
    filename: str
    content_type: str
    size: int
    is_inline: bool
    sha256: BlobKey


@dataclass(frozen=True, slots=True)
class Fate:
    """What a report says of one recipient, who may have been known by several addresses."""

    addresses: tuple[str, ...]
    status: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """What a mail says of another one that we sent: its Message-ID, and each recipient's fate."""

    internet_message_id: str
    fates: tuple[Fate, ...]


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message that is about to be stored; its bytes are in the blob store already.

    `searchable` holds the folded fields joined by `FIELD_BORDER`. `thread_id` puts the message
    into that thread; otherwise the mails it refers to and then its subject choose one. `effects`
    are what rules do with it; labels, flags and mailboxes are as they leave them. `auto_answered`
    are those, in lower case, whom it answers without a person having written it.
    """

    id: str
    inbox_id: str
    direction: Direction
    subject: str
    addresses: tuple[AddressLine, ...]
    date: datetime
    received_at: datetime
    internet_message_id: str | None
    in_reply_to: str | None
    references: tuple[str, ...]
    base_subject: str
    text: str
    new_text: str | None
    snippet: str
    searchable: str
    size_bytes: int
    raw: BlobKey
    fingerprint: bytes
    parser_version: int
    attachments: tuple[NewAttachment, ...] = ()
    defects: tuple[str, ...] = ()
    auth: dict[str, Any] = field(default_factory=dict)
    security: dict[str, Any] = field(default_factory=dict)
    mailboxes: tuple[str, ...] = ("Inbox",)
    labels: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    recipients: tuple[Recipient, ...] | None = None
    thread_id: str | None = None
    is_imported: bool = False
    report: DeliveryReport | None = None
    effects: tuple[RuleEffect, ...] = ()
    auto_answered: tuple[str, ...] = ()

    @property
    def sender(self) -> AddressLine | None:
        return next((a for a in self.addresses if a.role == "from"), None)

    @property
    def has_attachment(self) -> bool:
        return any(not a.is_inline for a in self.attachments)


@dataclass(frozen=True, slots=True)
class Added:
    """Where a message landed, or which one it repeats."""

    message_id: str
    thread_id: str
    is_duplicate: bool


@dataclass(frozen=True, slots=True)
class NewSend:
    """Everything that one send writes, at once or not at all."""

    message: NewMessage
    deliveries: tuple[NewMessage, ...]
    caller: str
    payload: bytes
    idempotency_key: str | None
    allow_duplicate: bool
    most_per_hour: int | None
    answered: str | None = None
    send_at: datetime | None = None
    warnings: tuple[str, ...] = ()
    draft_id: str | None = None
    draft_revision: int = 0


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which messages. `q`, `sender` and `recipient` are folded already; None asks for nothing.

    `mailbox` None leaves out what is only in Trash or Junk; `*` leaves out nothing.
    """

    visible: Visible = None
    inbox_id: str | None = None
    thread_id: str | None = None
    q: str | None = None
    sender: str | None = None
    recipient: str | None = None
    labels: tuple[str, ...] = ()
    has_attachment: bool | None = None
    after: datetime | None = None
    before: datetime | None = None
    mailbox: str | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Which threads."""

    visible: Visible = None
    inbox_id: str | None = None
    label: str | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class AttachmentQuery:
    """Whose attachments; what is given must all hold."""

    visible: Visible = None
    message_id: str | None = None
    thread_id: str | None = None
    inbox_id: str | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class Change:
    """What to change on messages; None and () leave a thing as it is."""

    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    labels: tuple[str, ...] | None = None
    flags: tuple[str, ...] | None = None
    move_to: str | None = None
    mailboxes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Outdated:
    """A message that an older parser has read, with what only its arrival knew."""

    number: int
    id: str
    inbox_id: str
    thread_id: str
    direction: Direction
    received_at: datetime
    bcc: tuple[str, ...]
    raw: BlobKey


@dataclass(frozen=True, slots=True)
class Reading:
    """What is kept of a message and follows from its bytes alone."""

    number: int
    id: str
    raw: BlobKey
    words: Words


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a mail, as they are shown and as they are searched."""

    subject: str
    sender: str
    internet_message_id: str | None
    snippet: str
    text: str
    searchable: str
    attachments: tuple[BlobKey, ...]


@dataclass(frozen=True, slots=True)
class RawMessage:
    """Where the bytes of a stored message are, for export."""

    number: int
    id: str
    date: datetime
    from_address: str
    raw: BlobKey
    size_bytes: int
    mailboxes: tuple[str, ...]
    flags: tuple[str, ...]
