"""Files that came with a message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime

BlobKey = str
"""The SHA-256 of the content, in hexadecimal."""


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


@dataclass(frozen=True, slots=True)
class Download:
    """Bytes on their way out, with the name and type they should be saved under."""

    chunks: AsyncIterator[bytes]
    size: int
    content_type: str
    filename: str


@dataclass(frozen=True, slots=True)
class DownloadLink:
    """An address that gives some bytes to whoever has it, until it expires."""

    url: str
    expires_at: datetime
    filename: str
    content_type: str
    size: int
