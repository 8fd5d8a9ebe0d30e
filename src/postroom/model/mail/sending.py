"""Outgoing mail: drafts, the outbox, and the outcome for each recipient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from postroom.model.inbox import OUTBOX, SENT, Visible
from postroom.model.mail.approval import Hold
from postroom.model.mail.message import INTERNAL, Attachment, BlobKey, Header, Recipient
from postroom.model.page import Page, Slice
from postroom.model.values import dataclass

WORST_FIRST = (
    "failed",
    "unknown",
    "bounced",
    "rejected",
    "held",
    "queued",
    "scheduled",
    "captured",
    "sent",
    "delivered",
)

PENDING_STATUSES = ("queued", "scheduled")
"""Not completed yet."""

WAITING = (*PENDING_STATUSES, "held")
"""Not completed yet, or waiting for a person's approval: it can be cancelled."""

POSSIBLY_SENT_STATUSES = ("unknown", "captured", "sent", "delivered")
"""The statuses of recipients for whom a mail has left, or may have left."""

RETRIABLE_STATUSES = ("failed", "unknown", "bounced", "captured", *PENDING_STATUSES)
"""The statuses of recipients to whom a mail may be sent again."""

OUTBOX_STATUSES = ("failed", "unknown", "bounced", "rejected", *WAITING)
"""The statuses in the list of the outbox."""

CANCELLED = "cancelled before it was sent"
"""The detail of recipients whose mail was cancelled."""

PAUSED = "the outbox is paused; the mail is sent once it is resumed"
"""The detail of mail that is queued in the meantime."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The response to every send. `status` is the worst of the recipients'.

    `send_at` is set while it is scheduled, `draft_id` once it was cancelled and is a draft again.
    """

    message_id: str
    thread_id: str
    status: str
    recipients: tuple[Recipient, ...]
    deduplicated: bool | None = None
    warnings: tuple[str, ...] | None = None
    send_at: datetime | None = None
    draft_id: str | None = None


def waits_until(recipients: tuple[Recipient, ...], send_at: datetime | None) -> datetime | None:
    """The time that a mail is scheduled for, as long as it waits for it."""
    return send_at if any(r.status in ("scheduled", "held") for r in recipients) else None


def mailbox_of(recipients: tuple[Recipient, ...]) -> str:
    """The mailbox of a new outgoing mail: Outbox until it has left for somebody."""
    return SENT if any(r.status in POSSIBLY_SENT_STATUSES for r in recipients) else OUTBOX


def overall_status(recipients: tuple[Recipient, ...]) -> str:
    """The worst status among the recipients."""
    return min((r.status for r in recipients), key=WORST_FIRST.index)


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """How the sender of a list was notified: a request was `accepted`, or a mail has its status."""

    message_id: str
    method: Literal["one_click", "mail"]
    status: str
    host: str | None = None
    mailto: str | None = None
    sent_message_id: str | None = None
    warnings: tuple[str, ...] | None = None


T = TypeVar("T")
DeliveryResult = Literal["sent", "deferred", "failed", "unknown"]
Transport = Literal["local", "relay", "account"]
TRANSPORTS: tuple[Transport, ...] = ("local", "relay", "account")
"""What handles a mail next: the scheduler here, the relay, or the provider of its account."""

GIVE_UP_AFTER = timedelta(hours=48)
"""Mail is abandoned this long after its first attempt, or since it waits for a sender."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The response of a relay for one recipient; `retry_after` is in seconds."""

    result: DeliveryResult
    detail: str
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class ReplyPreview:
    """A reply or a forward as it begins: who gets it, its subject and inbox.

    `quoted` is the original text as it is repeated below.
    """

    to: tuple[str, ...]
    cc: tuple[str, ...]
    subject: str
    inbox_id: str
    quoted: str = ""
    message_id: str = field(default="", metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class Envelope:
    """The SMTP envelope."""

    sender: str
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutboxJob:
    """A message that a worker has claimed; `inbox` and `number` are row numbers.

    `tried_since` is the time of its first attempt, or since when it waits for a sender.
    """

    inbox: int
    number: int
    message_id: str
    envelope: Envelope
    raw: BlobKey
    attempts: int
    queued_at: datetime
    is_scheduled: bool
    holder: str
    account_id: str | None = None
    tried_since: datetime | None = None
    inbox_id: str = ""
    sent_by: str | None = None
    """The id of the key that sent it; None if unknown, or if it was retried or approved since."""
    authors: tuple[str, ...] = ()
    """The ids of the keys whose policies hold for it."""
    is_unchanged: bool = True
    """Whether the digest of the mail is the one that passed the policies, or was approved."""

    @property
    def transport(self) -> Transport:
        if self.is_scheduled:
            return "local"
        return "relay" if self.account_id is None else "account"


@dataclass(frozen=True, slots=True)
class Claimed:
    """The jobs that a worker has claimed.

    `lost` counts the recipients with unknown status, by message, of workers that died.
    """

    jobs: tuple[OutboxJob, ...]
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A sent message that waits in the outbox, or failed.

    One that `is_paused` waits until the outbox is resumed.
    """

    message_id: str
    thread_id: str
    inbox_id: str
    subject: str
    status: str
    recipients: tuple[Recipient, ...]
    attempts: int
    queued_at: datetime
    next_attempt_at: datetime | None
    is_paused: bool
    send_at: datetime | None = None
    hold: Hold | None = None


@dataclass(frozen=True, slots=True)
class EarlierMail:
    """The content of a mail before it was cancelled and changed, or rejected and rewritten.

    `files` are the names of its attachments, `note` is why it was rejected.
    """

    message_id: str
    recipients: tuple[str, ...]
    subject: str
    text: str
    files: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class HeldMail:
    """A mail that waits for approval, as the person who decides sees it.

    `answers` is the message that it replies to, and `answered_text` what that says. `text` has what
    a reader sees of an HTML mail, `body_html` all of it, and `hidden_chars` counts the rest.
    `bcc_addresses` has every recipient that the mail itself does not name, `new_recipients` those
    that its inbox has never written to or heard from. `authors` are the keys that wrote it, by name
    for those who may know it. `replaces` is the mail before it, if it was changed.
    """

    message_id: str
    inbox_id: str
    from_address: str
    to_addresses: tuple[str, ...]
    cc_addresses: tuple[str, ...]
    bcc_addresses: tuple[str, ...]
    recipients: tuple[Recipient, ...]
    subject: str
    text: str
    attachments: tuple[Attachment, ...]
    status: str
    hold: Hold
    send_at: datetime | None = None
    answers: str | None = None
    answered_text: str | None = None
    body_html: str | None = None
    hidden_chars: int = 0
    reply_to: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    authors: tuple[str, ...] = ()
    new_recipients: tuple[str, ...] = ()
    replaces: EarlierMail | None = None


@dataclass(frozen=True, slots=True)
class OutboxPage(Page[T]):
    """A page of the outbox; nothing is sent while it `is_paused`."""

    is_paused: bool = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class OutboxState:
    """Whether the outbox is paused, and how much mail waits."""

    is_paused: bool
    waiting: int


@dataclass(frozen=True, slots=True)
class OutboxQuery:
    """A query for entries; without a status, all that are not completed."""

    visible: Visible
    status: str | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A file of a draft: an uploaded one, or a stored attachment."""

    filename: str | None
    content_type: str | None
    size: int | None
    attachment_id: str | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A mail that can be reviewed and changed before it is sent, immediately or at `send_at`."""

    id: str
    inbox_id: str
    to: tuple[str, ...]
    cc: tuple[str, ...]
    bcc: tuple[str, ...]
    subject: str
    body_text: str | None
    body_html: str | None
    in_reply_to: str | None
    thread_id: str | None
    attachments: tuple[DraftFile, ...]
    send_at: datetime | None
    created_at: datetime
    updated_at: datetime
    reply_to: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    from_: str | None = None


@dataclass(frozen=True, slots=True)
class StoredDraft:
    """A draft with the arguments of its send, and the id of the message once it is sent.

    The revision changes with each update; it is 0 before the draft is stored.
    """

    id: str
    inbox_id: str
    arguments: dict[str, Any]
    send_at: datetime | None
    created_at: datetime
    updated_at: datetime
    message_id: str | None = None
    number: int = field(default=0, metadata=INTERNAL)
    revision: int = field(default=0, metadata=INTERNAL)
    authors: tuple[str, ...] = field(default=(), metadata=INTERNAL)
    """The ids of the keys that wrote it; their policies hold when it is sent."""
    replaces: EarlierMail | None = field(default=None, metadata=INTERNAL)
    """The cancelled mail that it was made from."""
