"""Messages, their attachments and threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from postroom.model.mail.approval import Hold
from postroom.model.memory import RecalledMemory
from postroom.model.values import dataclass

BlobKey = str
"""The SHA-256 of the content, in hexadecimal."""

INTERNAL = {"internal": True}
"""Marks a field that is not shown to callers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageState:
    """What actions change of a message without an effect outside."""

    labels: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    mailboxes: tuple[str, ...] = ("Inbox",)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that came with a message. The bytes are in the blob store under `sha256`."""

    id: str
    message_id: str
    filename: str
    content_type: str
    size: int
    inline: bool
    sha256: BlobKey
    content: str | None = field(default=None, kw_only=True)
    content_omitted: bool | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class AttachmentContent:
    """A part of an attachment, or all of it, as base64."""

    content: str
    content_type: str
    filename: str
    size: int
    offset: int
    next_offset: int | None
    message_id: str = field(default="", metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class AttachmentText:
    """The text of an attachment that its reader sees; `warnings` list what was omitted."""

    text: str
    content_type: str
    filename: str
    size: int
    warnings: tuple[str, ...]
    security: dict[str, Any] | None = field(default=None, kw_only=True)
    truncated: bool | None = field(default=None, kw_only=True)
    total_chars: int | None = field(default=None, kw_only=True)
    next_offset: int | None = field(default=None, kw_only=True)
    message_id: str = field(default="", kw_only=True, metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class Download:
    """A stream of bytes, with the name and type to save them under."""

    chunks: AsyncIterator[bytes]
    size: int
    content_type: str
    filename: str
    message_id: str = field(default="", metadata=INTERNAL)


@dataclass(frozen=True, slots=True)
class MessageHtml:
    """The sanitised HTML of a message, with its own pictures in it; empty if it has none."""

    html: str
    message_id: str = field(default="", metadata=INTERNAL)
    styles: str = ""


@dataclass(frozen=True, slots=True)
class DownloadLink:
    """A URL from which anyone can download some bytes until it expires."""

    url: str
    expires_at: datetime
    filename: str
    content_type: str
    size: int
    message_id: str = field(default="", metadata=INTERNAL)


Direction = Literal["inbound", "outbound"]

FLAGS = ("seen", "flagged", "answered", "draft")
"""In the order of their display and of their bits in the store."""


class NamedAddress(NamedTuple):
    """A name and an address from a header; either may be empty."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class AddressLine:
    """A name and an address in one role: from, sender, to, cc, bcc or reply_to."""

    role: str
    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Header:
    """One header of a mail as it came, decoded."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class ListUnsubscribe:
    """How to unsubscribe from list mail: `host` is that of a web page, or of the one click."""

    one_click: bool
    mailto: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Recipient:
    """The delivery status of a sent mail for one recipient."""

    address: str
    status: str
    detail: str | None = None


FINDINGS: Mapping[str, str] = {
    "hidden_text": "text that a reader cannot see",
    "lookalike": "a misleading sender",
    "imitates": "a sender that imitates a known domain",
}
"""The security findings that make a mail suspicious, in words."""

_PREHEADER_CHARS = 250


def findings_in(security: Mapping[str, Any], *, is_list: bool) -> tuple[str, ...]:
    """The findings that make a mail suspicious when somebody sends after reading it.

    One short hidden text is usual in list mail: it is the preview that mail programs show.
    """
    pieces = len(security.get("hidden_text") or ())
    is_preview = is_list and pieces == 1 and hidden_chars(security) <= _PREHEADER_CHARS
    usual = ("hidden_text",) if is_preview else ()
    return tuple(
        words for name, words in FINDINGS.items() if security.get(name) and name not in usual
    )


def hidden_chars(security: Mapping[str, Any]) -> int:
    """How many characters of an HTML mail its reader does not see."""
    return sum(found.get("chars", 0) for found in security.get("hidden_text") or ())


def findings_of(details: Mapping[str, Any]) -> tuple[str, ...]:
    """The findings in the stored details of a message; empty for an ordinary one."""
    is_list = details.get("list_unsubscribe") is not None
    return findings_in(details.get("security") or {}, is_list=is_list)


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message in a list, without bodies."""

    id: str
    thread_id: str
    inbox_id: str
    direction: Direction
    subject: str
    from_address: str
    from_name: str
    to_addresses: tuple[str, ...]
    to_count: int | None
    date: datetime
    snippet: str
    labels: tuple[str, ...]
    flags: tuple[str, ...]
    mailboxes: tuple[str, ...]
    has_attachment: bool
    excerpt: str | None = None
    relevance: float | None = None
    status: str | None = None
    send_at: datetime | None = None
    findings: tuple[str, ...] = field(default=(), metadata=INTERNAL)
    """What makes it suspicious."""


@dataclass(frozen=True, slots=True)
class ThreadMessage(MessageRow):
    """A message inside its thread: a row with its new text."""

    new_text: str = ""
    text: str | None = None
    truncated: bool | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message."""

    id: str
    thread_id: str
    inbox_id: str
    direction: Direction
    subject: str
    from_address: str
    from_name: str
    to_addresses: tuple[str, ...]
    cc_addresses: tuple[str, ...]
    bcc_addresses: tuple[str, ...]
    reply_to_addresses: tuple[str, ...]
    addresses: tuple[AddressLine, ...]
    date: datetime
    received_at: datetime
    internet_message_id: str | None
    in_reply_to: str | None
    references: tuple[str, ...]
    snippet: str
    labels: tuple[str, ...]
    flags: tuple[str, ...]
    mailboxes: tuple[str, ...]
    has_attachment: bool
    size_bytes: int
    text: str
    attachments: tuple[Attachment, ...]
    auth: dict[str, Any]
    security: dict[str, Any]
    defects: tuple[str, ...]
    raw: BlobKey = field(metadata=INTERNAL)
    new_text: str | None = field(default=None, kw_only=True)
    quoted_text: str | None = field(default=None, kw_only=True)
    signature: str | None = field(default=None, kw_only=True)
    html: str | None = field(default=None, kw_only=True)
    headers: tuple[Header, ...] | None = field(default=None, kw_only=True)
    truncated: bool | None = field(default=None, kw_only=True)
    total_chars: int | None = field(default=None, kw_only=True)
    next_offset: int | None = field(default=None, kw_only=True)
    status: str | None = field(default=None, kw_only=True)
    send_at: datetime | None = field(default=None, kw_only=True)
    recipients: tuple[Recipient, ...] | None = field(default=None, kw_only=True)
    list_unsubscribe: ListUnsubscribe | None = field(default=None, kw_only=True)
    memories: tuple[RecalledMemory, ...] | None = field(default=None, kw_only=True)
    hold: Hold | None = field(default=None, kw_only=True)

    @property
    def findings(self) -> tuple[str, ...]:
        """What makes it suspicious."""
        if self.direction == "outbound":
            return ()
        return findings_in(self.security, is_list=self.list_unsubscribe is not None)


@dataclass(frozen=True, slots=True)
class FailedAction:
    """Why an action did not work on one message."""

    message_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action for each message."""

    status: Literal["ok", "partial", "failed"]
    succeeded: tuple[str, ...]
    failed: tuple[FailedAction, ...]
    plan_id: str | None = field(default=None, kw_only=True)
    undo_id: str | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls,
        succeeded: tuple[str, ...],
        failed: tuple[FailedAction, ...],
        plan_id: str | None = None,
    ) -> ActionResult:
        """The result with the status that follows from both lists."""
        problem: Literal["partial", "failed"] = "partial" if succeeded else "failed"
        return cls(problem if failed else "ok", succeeded, failed, plan_id=plan_id)


@dataclass(frozen=True, slots=True)
class Received:
    """The outcome of an arrival. `hint` says why it is a duplicate, and what to do."""

    message_id: str
    thread_id: str
    status: Literal["received", "duplicate"]
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class ReceivedPosting:
    """The result of a provider's post: a message for each recipient inbox."""

    status: Literal["received", "duplicate", "nothing"]
    messages: tuple[Received, ...]


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread in a list."""

    id: str
    inbox_id: str
    subject: str
    participants: tuple[str, ...]
    message_count: int
    first_date: datetime
    last_date: datetime
    labels: tuple[str, ...]
    snippet: str


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread with its newest messages, oldest of them first."""

    id: str
    inbox_id: str
    subject: str
    participants: tuple[str, ...]
    message_count: int
    first_date: datetime
    last_date: datetime
    labels: tuple[str, ...]
    messages: tuple[ThreadMessage, ...]
    has_more: bool
    memories: tuple[RecalledMemory, ...] | None = None


MarkKind = Literal["hidden", "invisible", "pixel", "picture", "quoted", "signature"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that an agent does not get: its position (`number`), what, and why.

    `is_in_agent_text` says that the same words are in the text that the agent gets, by another way.
    """

    number: int
    kind: MarkKind
    label: str
    reason: str = ""
    chars: int = 0
    is_in_agent_text: bool = False


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of a text; `mark` is set if an agent does not get it.

    Only the first piece of a mark `is_first`, and carries its label.
    """

    text: str
    mark: Mark | None = None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class MarkedMessage:
    """A message as a browser shows it, with marks; `html` is empty if it has none.

    `plain` is the plain text, if that is what the agent gets, and `marks` are those of both.
    """

    html: str
    plain: tuple[TextPiece, ...]
    marks: tuple[Mark, ...]
    message_id: str = field(default="", metadata=INTERNAL)
