"""An address whose mail we keep, and the names mail is sorted under."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

INBOX, SENT, DRAFTS, ARCHIVE, JUNK, TRASH = (
    "Inbox",
    "Sent",
    "Drafts",
    "Archive",
    "Junk",
    "Trash",
)
STANDARD_MAILBOXES = (INBOX, SENT, DRAFTS, ARCHIVE, JUNK, TRASH)
HIDDEN_MAILBOXES = (JUNK, TRASH)
"""Left out of lists, searches and counts unless a mailbox is named."""

EVERY_MAILBOX = "*"

Visible = frozenset[str] | None
"""The inbox ids that a caller may see; None is all of them."""


@dataclass(frozen=True, slots=True)
class Inbox:
    """An address whose mail we keep for an agent; local, or fed from an account."""

    id: str
    address: str
    name: str
    account_id: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Label:
    """A name put on messages, and how many of the caller's messages carry it."""

    name: str
    message_count: int
