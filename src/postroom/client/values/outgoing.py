"""Values that operations answer with. Made by scripts/make_client.py."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from msgspec import field

from postroom.client.value import ABSENT, Value
from postroom.client.values.mail import Attachment, Header, Message, Recipient
from postroom.client.values.memories import Hold


class AuditEntry(Value, frozen=True):
    """One effect. `hash` depends on the entry, on all before it and on a key we keep elsewhere.

    `via` is null in entries of versions before schema 41.
    """

    id: str = ""
    at: datetime = ABSENT
    actor: str = ""
    via: str | None = None
    action: str = ""
    target: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    hash: str = ""


class Draft(Value, frozen=True, rename={"from_": "from"}):
    """A mail to be looked at, changed and then sent, at once or at `send_at`."""

    id: str = ""
    inbox_id: str = ""
    to: tuple[str, ...] = ()
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    subject: str = ""
    body_text: str | None = None
    body_html: str | None = None
    in_reply_to: str | None = None
    thread_id: str | None = None
    attachments: tuple[DraftFile, ...] = ()
    send_at: datetime | None = None
    created_at: datetime = ABSENT
    updated_at: datetime = ABSENT
    reply_to: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    from_: str | None = None


class DraftFile(Value, frozen=True):
    """A file of a draft: one that was given, or one we hold."""

    filename: str | None = None
    content_type: str | None = None
    size: int | None = None
    attachment_id: str | None = None


class EarlierMail(Value, frozen=True):
    """What a mail said before it was cancelled and changed, or rejected and written again.

    `files` are the names of its attachments, `note` is why it was rejected.
    """

    message_id: str = ""
    recipients: tuple[str, ...] = ()
    subject: str = ""
    text: str = ""
    files: tuple[str, ...] = ()
    note: str | None = None


class Event(Value, frozen=True):
    """Something that happened to a message, written in the transaction that made it happen."""

    id: str = ""
    type: str = ""
    at: datetime = ABSENT
    inbox_id: str = ""
    thread_id: str | None = None
    message_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


class HeldMail(Value, frozen=True):
    """A mail that waits for approval, as the person who decides sees it.

    `answers` is the message that it replies to, and `answered_text` what that says. `text` has what
    a reader sees of an HTML mail, `body_html` all of it, and `hidden_chars` counts the rest.
    `bcc_addresses` has every recipient that the mail itself does not name, `new_recipients` those
    that its inbox has never written to or heard from. `authors` are the keys that wrote it, by name
    for those who may know it. `replaces` is the mail before it, if it was changed.
    """

    message_id: str = ""
    inbox_id: str = ""
    from_address: str = ""
    to_addresses: tuple[str, ...] = ()
    cc_addresses: tuple[str, ...] = ()
    bcc_addresses: tuple[str, ...] = ()
    recipients: tuple[Recipient, ...] = ()
    subject: str = ""
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    status: str = ""
    hold: Hold = ABSENT
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


class OutboxEntry(Value, frozen=True):
    """A sent message that is not out yet, or did not get out.

    One that `is_paused` waits, whatever its time, until the outbox is resumed.
    """

    message_id: str = ""
    thread_id: str = ""
    inbox_id: str = ""
    subject: str = ""
    status: str = ""
    recipients: tuple[Recipient, ...] = ()
    attempts: int = 0
    queued_at: datetime = ABSENT
    next_attempt_at: datetime | None = None
    is_paused: bool = False
    send_at: datetime | None = None
    hold: Hold | None = None


class OutboxState(Value, frozen=True):
    """Whether the outbox hands mail over, and how much waits."""

    is_paused: bool = False
    waiting: int = 0


class Sent(Value, frozen=True):
    """The answer to every send. `status` is the worst of the recipients'.

    `send_at` is there while it is scheduled, `draft_id` once it is cancelled and a draft again.
    """

    message_id: str = ""
    thread_id: str = ""
    status: str = ""
    recipients: tuple[Recipient, ...] = ()
    deduplicated: bool | None = None
    warnings: tuple[str, ...] | None = None
    send_at: datetime | None = None
    draft_id: str | None = None


class Unsubscribed(Value, frozen=True):
    """How the sender of a list was told: a request was `accepted`, or a mail has its status."""

    message_id: str = ""
    method: str = ""
    status: str = ""
    host: str | None = None
    mailto: str | None = None
    sent_message_id: str | None = None
    warnings: tuple[str, ...] | None = None


class Waited(Value, frozen=True):
    """The message that was waited for, or where to go on waiting."""

    message: Message | None = None
    timed_out: bool = False
    extracted: str | None = None
    since: str | None = None


class Webhook(Value, frozen=True):
    """A URL that gets events. `secret` is shown when it is made or renewed, and only then."""

    id: str = ""
    url: str = ""
    types: tuple[str, ...] = ()
    inboxes: tuple[str, ...] | None = None
    created_at: datetime = ABSENT
    enabled: bool = False
    secret: str | None = None
    stopped: str | None = None
    SECRETS: ClassVar = frozenset(["secret"])


class WebhookDelivery(Value, frozen=True):
    """One event on its way to one webhook."""

    id: str = ""
    webhook_id: str = ""
    event_id: str = ""
    type: str = ""
    status: str = ""
    attempts: int = 0
    code: int | None = None
    detail: str = ""
    created_at: datetime = ABSENT
    next_attempt_at: datetime | None = None


class WebhookPing(Value, frozen=True):
    """The response to a request that was sent to try a webhook."""

    webhook_id: str = ""
    status: str = ""
    code: int | None = None
    detail: str = ""
