"""A mail that is not sent yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from postroom.model.message import INTERNAL


@dataclass(frozen=True, slots=True)
class DraftFile:
    """A file of a draft: one that was given, or one we hold."""

    filename: str | None
    content_type: str | None
    size: int | None
    attachment_id: str | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A mail to be looked at, changed and then sent, at once or at `send_at`."""

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


@dataclass(frozen=True, slots=True)
class StoredDraft:
    """A draft as it is kept: the arguments of the send that it will be, and what it has become.

    Its revision is 0 until it is kept, and another one after each change.
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
