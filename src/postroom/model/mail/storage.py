"""New messages for the store, queries and changes."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime, timedelta
from typing import Any

from postroom.model.inbox import Visible
from postroom.model.mail.approval import OPEN_POLICY, Policy
from postroom.model.mail.message import AddressLine, BlobKey, Direction, ListUnsubscribe, Recipient
from postroom.model.page import Slice
from postroom.model.rule import RuleEffect
from postroom.model.values import dataclass

FIELD_BORDER = "\x1f"
"""Separates the folded fields of a message; folding removes it from their content."""


@dataclass(frozen=True, slots=True)
class NewAttachment:
    """An attachment to be stored; its bytes are in the blob store already."""

    id: str
    filename: str
    content_type: str
    size: int
    is_inline: bool
    sha256: BlobKey


@dataclass(frozen=True, slots=True)
class SearchTexts:
    """The folded texts that filters search; see `mail.text.fold`."""

    searchable: str
    senders: str
    recipients: str


@dataclass(frozen=True, slots=True)
class RecipientStatus:
    """The status of one recipient in a delivery report, by all of their addresses."""

    addresses: tuple[str, ...]
    status: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """A report on a mail that we sent: its Message-ID, and the status of each recipient."""

    internet_message_id: str
    statuses: tuple[RecipientStatus, ...]


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be stored; its bytes are in the blob store already.

    `searchable` has the folded fields, joined by `FIELD_BORDER`. Without `thread_id`, the thread
    follows from the references and then from the subject. Labels, flags and mailboxes are those
    after rules ran; `effects` are what else rules do. `auto_answered` are the addresses, in lower
    case, that get an automatic reply with it. With `adds_contact`, its sender counts as a contact
    of the inbox. `submitted_by` are the ids of the keys that sent it here or handed it in: their
    policies hold for what rules send because of it.
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
    adds_contact: bool = True
    submitted_by: tuple[str, ...] = ()
    report: DeliveryReport | None = None
    effects: tuple[RuleEffect, ...] = ()
    auto_answered: tuple[str, ...] = ()
    send_at: datetime | None = None
    list_unsubscribe: ListUnsubscribe | None = None
    hold: dict[str, object] | None = None
    """The hold of an outgoing mail in its stored form."""

    @property
    def sender(self) -> AddressLine | None:
        for address in self.addresses:
            if address.role == "from":
                return address
        return None

    @property
    def has_attachment(self) -> bool:
        return any(not a.is_inline for a in self.attachments)


@dataclass(frozen=True, slots=True)
class Added:
    """The stored message, or the one that it duplicates."""

    message_id: str
    thread_id: str
    is_duplicate: bool
    same_bytes: bool = False
    """Whether it is a duplicate without a Message-ID, known by its bytes alone."""


@dataclass(frozen=True, slots=True)
class ReplyLimit:
    """The limit of automatic replies to one address per day: from one inbox, and in total."""

    in_inbox: int
    in_all: int | None


@dataclass(frozen=True, slots=True)
class Gate:
    """The settings of the gate that outgoing mail passes: the agent's policy, how long it holds,
    and where the owner is notified of held mail and decides.
    """

    agent: Policy = OPEN_POLICY
    hold_for: timedelta = timedelta(hours=72)
    notify: str | None = None
    page_url: str = ""


@dataclass(frozen=True, slots=True)
class NewSend:
    """Everything that one send writes in one transaction."""

    message: NewMessage
    deliveries: tuple[NewMessage, ...]
    caller: str
    payload: bytes
    idempotency_key: str | None
    allow_duplicate: bool
    max_per_hour: int | None
    answered: str | None = None
    send_at: datetime | None = None
    warnings: tuple[str, ...] = ()
    draft_id: str | None = None
    draft_revision: int = 0
    reply_limit: ReplyLimit | None = None
    external_recipients: tuple[str, ...] = ()
    """The recipients to whom it would leave, by the relay or a provider."""
    authors: tuple[str, ...] = ()
    """The ids of the keys whose policies hold."""
    gate: Gate = Gate()
    via: str = ""
    """How it was asked for; empty for what is not counted."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What became of a cancelled mail: a draft, unless some recipients have it already.

    `unused` are the blobs that nothing uses any more.
    """

    draft_id: str | None = None
    unused: tuple[BlobKey, ...] = ()


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """A query for messages. Texts are folded; None and () are no condition.

    `words` are contained in any of the fields of `q`, all of them; `sender_words` in the address or
    name of the sender, `recipient_words` in those of the recipients. `flags` are all required,
    `without_flags` all excluded. Without a `mailbox`, messages that are only in Trash or Junk are
    excluded; `*` includes them.
    """

    visible: Visible
    inbox_id: str | None = None
    thread_id: str | None = None
    q: str | None = None
    words: tuple[str, ...] = ()
    sender: str | None = None
    sender_words: tuple[str, ...] = ()
    recipient: str | None = None
    recipient_words: tuple[str, ...] = ()
    subject: str | None = None
    labels: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    without_flags: tuple[str, ...] = ()
    has_attachment: bool | None = None
    after: datetime | None = None
    before: datetime | None = None
    mailbox: str | None = None
    oldest_first: bool = False
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """A query for threads."""

    visible: Visible
    inbox_id: str | None = None
    label: str | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class AttachmentQuery:
    """A query for attachments; all conditions must hold."""

    visible: Visible
    message_id: str | None = None
    thread_id: str | None = None
    inbox_id: str | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class Change:
    """A change of messages; None and () leave a field as it is."""

    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    labels: tuple[str, ...] | None = None
    add_flags: tuple[str, ...] = ()
    remove_flags: tuple[str, ...] = ()
    flags: tuple[str, ...] | None = None
    move_to: str | None = None
    mailboxes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class OutdatedMessage:
    """A message that an older parser read, with what is only known from its arrival."""

    number: int
    id: str
    inbox_id: str
    thread_id: str
    direction: Direction
    received_at: datetime
    bcc: tuple[str, ...]
    raw: BlobKey


@dataclass(frozen=True, slots=True)
class StoredParse:
    """The stored values that follow from the bytes of a message."""

    number: int
    id: str
    raw: BlobKey
    values: ParsedValues


@dataclass(frozen=True, slots=True)
class ParsedValues:
    """The texts of a mail, as shown and as searched."""

    subject: str
    sender: str
    internet_message_id: str | None
    snippet: str
    text: str
    searchable: str
    attachments: tuple[BlobKey, ...]


@dataclass(frozen=True, slots=True)
class RawMessage:
    """The blob of a stored message, with its metadata, for export."""

    number: int
    id: str
    date: datetime
    from_address: str
    raw: BlobKey
    size_bytes: int
    mailboxes: tuple[str, ...]
    flags: tuple[str, ...]
