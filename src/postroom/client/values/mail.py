"""Values that operations answer with. Made by scripts/make_client.py."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import field

from postroom.client.responses import ABSENT, Value
from postroom.client.values.memories import Hold, RecalledMemory


class ActionResult(Value, frozen=True):
    """The result of an action for each message."""

    status: str = ""
    succeeded: tuple[str, ...] = ()
    failed: tuple[FailedAction, ...] = ()
    plan_id: str | None = None
    undo_id: str | None = None


class AddressLine(Value, frozen=True):
    """A name and an address in one role: from, sender, to, cc, bcc or reply_to."""

    role: str = ""
    name: str = ""
    address: str = ""


class Attachment(Value, frozen=True):
    """A file that came with a message. The bytes are in the blob store under `sha256`."""

    id: str = ""
    message_id: str = ""
    filename: str = ""
    content_type: str = ""
    size: int = 0
    inline: bool = False
    sha256: str = ""
    content: str | None = None
    content_omitted: bool | None = None


class AttachmentContent(Value, frozen=True):
    """A part of an attachment, or all of it, as base64."""

    content: str = ""
    content_type: str = ""
    filename: str = ""
    size: int = 0
    offset: int = 0
    next_offset: int | None = None


class AttachmentText(Value, frozen=True):
    """The text of an attachment that its reader sees; `warnings` list what was omitted."""

    text: str = ""
    content_type: str = ""
    filename: str = ""
    size: int = 0
    warnings: tuple[str, ...] = ()
    security: dict[str, Any] | None = None
    truncated: bool | None = None
    total_chars: int | None = None
    next_offset: int | None = None


class DownloadLink(Value, frozen=True):
    """A URL from which anyone can download some bytes until it expires."""

    url: str = ""
    expires_at: datetime = ABSENT
    filename: str = ""
    content_type: str = ""
    size: int = 0


class FailedAction(Value, frozen=True):
    """Why an action did not work on one message."""

    message_id: str = ""
    code: str = ""
    message: str = ""


class FoundIds(Value, frozen=True):
    """The first ids that begin with the same characters."""

    ids: tuple[str, ...] = ()
    has_more: bool = False


class Header(Value, frozen=True):
    """One header of a mail as it came, decoded."""

    name: str = ""
    value: str = ""


class Inbox(Value, frozen=True):
    """An address whose mail is stored for an agent; local, or synced from an account."""

    id: str = ""
    address: str = ""
    name: str = ""
    account_id: str | None = None
    created_at: datetime = ABSENT


class Label(Value, frozen=True):
    """A label, and how many of the caller's messages have it.

    `unread` have no flag `seen`.
    """

    name: str = ""
    message_count: int = 0
    unread: int = 0


class ListUnsubscribe(Value, frozen=True):
    """How to unsubscribe from list mail: `host` is that of a web page, or of the one click."""

    one_click: bool = False
    mailto: str | None = None
    host: str | None = None


class Mailbox(Value, frozen=True):
    """A folder of an inbox, and how many messages are in it; `unread` have no flag `seen`."""

    inbox_id: str = ""
    name: str = ""
    total: int = 0
    unread: int = 0


class Message(Value, frozen=True):
    """A whole message."""

    id: str = ""
    thread_id: str = ""
    inbox_id: str = ""
    direction: str = ""
    subject: str = ""
    from_address: str = ""
    from_name: str = ""
    to_addresses: tuple[str, ...] = ()
    cc_addresses: tuple[str, ...] = ()
    bcc_addresses: tuple[str, ...] = ()
    reply_to_addresses: tuple[str, ...] = ()
    addresses: tuple[AddressLine, ...] = ()
    date: datetime = ABSENT
    received_at: datetime = ABSENT
    internet_message_id: str | None = None
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()
    snippet: str = ""
    labels: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    mailboxes: tuple[str, ...] = ()
    has_attachment: bool = False
    size_bytes: int = 0
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    auth: dict[str, Any] = field(default_factory=dict)
    security: dict[str, Any] = field(default_factory=dict)
    defects: tuple[str, ...] = ()
    new_text: str | None = None
    quoted_text: str | None = None
    signature: str | None = None
    html: str | None = None
    headers: tuple[Header, ...] | None = None
    truncated: bool | None = None
    total_chars: int | None = None
    next_offset: int | None = None
    status: str | None = None
    send_at: datetime | None = None
    recipients: tuple[Recipient, ...] | None = None
    list_unsubscribe: ListUnsubscribe | None = None
    memories: tuple[RecalledMemory, ...] | None = None
    hold: Hold | None = None


class MessageRow(Value, frozen=True):
    """A message in a list, without bodies."""

    id: str = ""
    thread_id: str = ""
    inbox_id: str = ""
    direction: str = ""
    subject: str = ""
    from_address: str = ""
    from_name: str = ""
    to_addresses: tuple[str, ...] = ()
    to_count: int | None = None
    date: datetime = ABSENT
    snippet: str = ""
    labels: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    mailboxes: tuple[str, ...] = ()
    has_attachment: bool = False
    excerpt: str | None = None
    relevance: float | None = None
    status: str | None = None
    send_at: datetime | None = None


class Received(Value, frozen=True):
    """The outcome of an arrival. `hint` says why it is a duplicate, and what to do."""

    message_id: str = ""
    thread_id: str = ""
    status: str = ""
    hint: str | None = None


class ReceivedPosting(Value, frozen=True):
    """The result of a provider's post: a message for each recipient inbox."""

    status: str = ""
    messages: tuple[Received, ...] = ()


class Recipient(Value, frozen=True):
    """The delivery status of a sent mail for one recipient."""

    address: str = ""
    status: str = ""
    detail: str | None = None


class Thread(Value, frozen=True):
    """A thread with its newest messages, oldest of them first."""

    id: str = ""
    inbox_id: str = ""
    subject: str = ""
    participants: tuple[str, ...] = ()
    message_count: int = 0
    first_date: datetime = ABSENT
    last_date: datetime = ABSENT
    labels: tuple[str, ...] = ()
    messages: tuple[ThreadMessage, ...] = ()
    has_more: bool = False
    memories: tuple[RecalledMemory, ...] | None = None


class ThreadMessage(MessageRow, frozen=True):
    """A message inside its thread: a row with its new text."""

    new_text: str = ""
    text: str | None = None
    truncated: bool | None = None


class ThreadRow(Value, frozen=True):
    """A thread in a list."""

    id: str = ""
    inbox_id: str = ""
    subject: str = ""
    participants: tuple[str, ...] = ()
    message_count: int = 0
    first_date: datetime = ABSENT
    last_date: datetime = ABSENT
    labels: tuple[str, ...] = ()
    snippet: str = ""
