"""Values that operations answer with. Made by scripts/make_client.py."""

from __future__ import annotations

from datetime import datetime

from postroom.client.responses import ABSENT, Value


class ForgottenMemory(Value, frozen=True):
    """A deleted memory."""

    namespace: str = ""
    key: str = ""
    deleted: bool = False


class Hold(Value, frozen=True):
    """Why an outgoing mail waits for a person, or waited.

    `sha256` covers the composed bytes and the envelope: it names the mail that is approved.
    """

    sha256: str = ""
    reasons: tuple[str, ...] = ()
    held_at: datetime = ABSENT
    expires_at: datetime = ABSENT
    decision: str | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    note: str | None = None


class InboxPolicy(Value, frozen=True):
    """The policy of an inbox: approval, recipients and accepted senders."""

    approval: str = ""
    recipients: RecipientLists = ABSENT
    senders: SenderLists = ABSENT


class Link(Value, frozen=True):
    """Where a memory comes from or what it is about: a memory, message, thread or address."""

    type: str = ""
    to: str = ""
    weight: float | None = None


class Memory(Value, frozen=True):
    """A note stored under a key. `stale`: the mail from which it was derived was removed."""

    namespace: str = ""
    key: str = ""
    summary: str = ""
    text: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    trust: str = ""
    version: int = 0
    expires_at: datetime | None = None
    created_at: datetime = ABSENT
    updated_at: datetime = ABSENT
    stale: bool | None = None
    created: bool | None = None
    similar: tuple[Similar, ...] | None = None
    history: tuple[MemoryVersion, ...] | None = None
    truncated: bool | None = None
    total_chars: int | None = None
    next_offset: int | None = None


class MemoryHit(Value, frozen=True):
    """A memory that a search found; `relevance` is 0 to 1, and `score` the same."""

    key: str = ""
    summary: str = ""
    relevance: float = 0.0
    score: float = 0.0
    excerpt: str = ""
    tags: tuple[str, ...] = ()
    namespace: str = ""
    trust: str = ""
    updated_at: datetime = ABSENT
    stale: bool | None = None


class MemoryRow(Value, frozen=True):
    """A memory in a list."""

    namespace: str = ""
    key: str = ""
    summary: str = ""
    tags: tuple[str, ...] = ()
    trust: str = ""
    version: int = 0
    updated_at: datetime = ABSENT
    expires_at: datetime | None = None
    stale: bool | None = None


class MemoryVersion(Value, frozen=True):
    """An earlier version of a memory."""

    version: int = 0
    summary: str = ""
    text: str = ""
    tags: tuple[str, ...] = ()
    trust: str = ""
    updated_at: datetime = ABSENT


class RecalledMemory(Value, frozen=True):
    """A memory shown beside mail: an earlier note, not part of the mail."""

    namespace: str = ""
    key: str = ""
    summary: str = ""
    about: str = ""
    trust: str = ""
    updated_at: datetime = ABSENT
    recalled: bool = False
    stale: bool | None = None


class RecipientLists(Value, frozen=True):
    """Addresses and `@domains`: those on `deny` are refused; those on `allow` are never new."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class SenderLists(Value, frozen=True):
    """The senders that an inbox accepts: addresses and `@domains`.

    Mail from those on `block`, and from any others if `allow` is not empty, goes to Junk; with the
    action `refuse` it is refused over SMTP.
    """

    allow: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    action: str = ""


class Similar(Value, frozen=True):
    """A memory under another key with nearly the same text."""

    key: str = ""
    summary: str = ""
    similarity: float = 0.0
    trust: str = ""


class Verdict(Value, frozen=True):
    """The decision of the policies about a mail: refused, held or sent."""

    verdict: str = ""
    reasons: tuple[str, ...] = ()
    recipients: tuple[str, ...] = ()
