"""Shapes inside arguments. Made by scripts/make_client.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NotRequired, TypedDict


class RecipientPatterns(TypedDict):
    """Addresses and @domains; a domain does not include its subdomains."""

    allow: NotRequired[Sequence[str]]
    deny: NotRequired[Sequence[str]]


class SenderPatterns(TypedDict):
    """Addresses and @domains; a domain does not include its subdomains."""

    allow: NotRequired[Sequence[str]]
    block: NotRequired[Sequence[str]]
    action: NotRequired[Literal["junk", "refuse"]]


class HeaderInput(TypedDict):
    """A header to add to a mail."""

    name: str
    value: str


class AttachmentInput(TypedDict):
    """A file to send: its content as base64, or the id of a stored attachment."""

    filename: NotRequired[str]
    content_type: NotRequired[str]
    content: NotRequired[str]
    attachment_id: NotRequired[str]


MessageSelection = TypedDict(
    "MessageSelection",
    {
        "inbox_id": NotRequired[str],
        "thread_id": NotRequired[str],
        "q": NotRequired[str],
        "query": NotRequired[str],
        "labels": NotRequired[Sequence[str]],
        "from": NotRequired[str],
        "to": NotRequired[str],
        "subject": NotRequired[str],
        "unread": NotRequired[bool],
        "flags": NotRequired[Sequence[Literal["seen", "flagged", "answered", "draft"]]],
        "has_attachment": NotRequired[bool],
        "after_date": NotRequired[datetime | str],
        "before_date": NotRequired[datetime | str],
        "mailbox": NotRequired[str],
    },
)
"""The filters of messages, without paging."""


class MemoryLink(TypedDict):
    """Where a memory comes from, or what it is about."""

    type: str
    to: str
    weight: NotRequired[float]
