"""Memories: keyed notes with their links and trust."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import Literal

from postroom.model.inbox import Visible
from postroom.model.page import Slice
from postroom.model.values import dataclass, late_pattern
from postroom.model.view import View

Trust = Literal["user", "agent", "mail"]
"""Who confirmed a memory: the owner, an agent, or nobody, since it comes from mail."""

_LEAST_FIRST: tuple[Trust, ...] = ("mail", "agent", "user")

Namespaces = View
"""The names of the namespaces that a caller may see."""

Vector = bytes
"""An embedding: a unit vector of little-endian 32-bit floats."""

CollectionName = tuple[str, str]
"""The name of a collection: the memories of a namespace, or mail."""

MAIL_COLLECTION: CollectionName = ("mail", "")

DEFAULT_NAMESPACE = "default"
RESERVED_KEYS = frozenset({"search", "fulltext", ".", ".."})
"""Keys that would conflict with paths of the API."""

MAIL_MEMORY_LIFETIME = timedelta(days=365)
"""The default lifetime of a memory that comes from mail."""

SUMMARY_CHARS = 120

_MAIL_ID = late_pattern("(?:msg|thr)_(?:[0-9a-z]{12}|[0-9a-z]{26})")
_ADDRESS = late_pattern(
    r"""[^\s@<>()\[\]",;:\\]{1,64}@(?:[^\W_](?:[^\W_]|-){0,62}\.)*[^\W_](?:[^\W_]|-){0,62}"""
)
"""The form of a target decides what a link refers to; any other is the key of a memory."""


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """The terms of a query, and its vector if there is a model."""

    terms: Sequence[str]
    vector: Vector | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Where a memory comes from or what it is about: a memory, message, thread or address."""

    type: str
    to: str
    weight: float | None = None

    @property
    def is_message(self) -> bool:
        return self.to.startswith("msg_") and self.is_mail

    @property
    def is_mail(self) -> bool:
        return _MAIL_ID.fullmatch(self.to) is not None

    @property
    def is_address(self) -> bool:
        return _ADDRESS.fullmatch(self.to) is not None


@dataclass(frozen=True, slots=True)
class Similar:
    """A memory under another key with nearly the same text."""

    key: str
    summary: str
    similarity: float
    trust: Trust


@dataclass(frozen=True, slots=True)
class MemoryVersion:
    """An earlier version of a memory."""

    version: int
    summary: str
    text: str
    tags: tuple[str, ...]
    trust: Trust
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Memory:
    """A note stored under a key. `stale`: the mail from which it was derived was removed."""

    namespace: str
    key: str
    summary: str
    text: str
    tags: tuple[str, ...]
    links: tuple[Link, ...]
    trust: Trust
    version: int
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    stale: bool | None = field(default=None, kw_only=True)
    created: bool | None = field(default=None, kw_only=True)
    similar: tuple[Similar, ...] | None = field(default=None, kw_only=True)
    history: tuple[MemoryVersion, ...] | None = field(default=None, kw_only=True)
    truncated: bool | None = field(default=None, kw_only=True)
    total_chars: int | None = field(default=None, kw_only=True)
    next_offset: int | None = field(default=None, kw_only=True)

    @property
    def status(self) -> str:
        """Whether the write created or updated it."""
        return "created" if self.created else "updated"


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A memory in a list."""

    namespace: str
    key: str
    summary: str
    tags: tuple[str, ...]
    trust: Trust
    version: int
    updated_at: datetime
    expires_at: datetime | None = None
    stale: bool | None = None


@dataclass(frozen=True, slots=True)
class MemoryHit:
    """A memory that a search found; `relevance` is 0 to 1, and `score` the same."""

    key: str
    summary: str
    relevance: float
    score: float
    excerpt: str
    tags: tuple[str, ...]
    namespace: str
    trust: Trust
    updated_at: datetime
    stale: bool | None = None


@dataclass(frozen=True, slots=True)
class ForgottenMemory:
    """A deleted memory."""

    namespace: str
    key: str
    deleted: bool = True


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A namespace in a list: how many memories it has, and when one changed last."""

    name: str
    memories: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A text without an embedding, by collection and document."""

    collection: int
    document: int
    text: str


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A memory shown beside mail: an earlier note, not part of the mail."""

    namespace: str
    key: str
    summary: str
    about: str
    trust: Trust
    updated_at: datetime
    recalled: bool = True
    stale: bool | None = None


@dataclass(frozen=True, slots=True)
class DisclosedMemory:
    """A memory about some people whose text would be sent to others.

    `about` are its linked addresses, and `sources` its linked mail. The participants of that mail
    are not listed, since strangers choose their addresses themselves.
    """

    namespace: str
    key: str
    about: tuple[str, ...]
    sources: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """A change of a memory; None leaves a field as it is.

    With `confirms_trust` the owner raises the trust of a memory that comes from mail. `max_trust`
    limits its trust: for rules, and for imports. Imports may link to mail that does not exist here;
    then `follows_links` is False, and `is_stale` is set.
    """

    namespace: str
    key: str
    text: str | None = None
    summary: str | None = None
    tags: tuple[str, ...] | None = None
    links: tuple[Link, ...] | None = None
    expires_at: datetime | None = None
    clears_expiry: bool = False
    confirms_trust: bool = False
    max_trust: Trust = "user"
    follows_links: bool = True
    is_stale: bool = False
    of_version: int | None = None
    """Change this version only."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes a memory, and the inboxes and namespaces that they may see."""

    is_owner: bool
    visible: Visible
    namespaces: Namespaces
    key_id: str = ""

    @property
    def trust(self) -> Trust:
        return "user" if self.is_owner else "agent"


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A query for memories of one namespace; None and () are no condition."""

    namespace: str
    now: datetime
    tags: tuple[str, ...] = ()
    linked_to: str | None = None
    since: datetime | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class Keyword:
    """A full-text condition: all of the terms, or a literal phrase."""

    terms: tuple[str, ...]
    phrase: str | None = None


def collection_of(namespace: str) -> CollectionName:
    return ("memories", namespace)


def lowest_trust(*trusts: Trust) -> Trust:
    return min(trusts, key=_LEAST_FIRST.index)


def summary_of(text: str) -> str:
    """The default summary of a memory: the start of its text."""
    line = " ".join(text[: 4 * SUMMARY_CHARS].split())
    if len(line) <= SUMMARY_CHARS:
        return line
    cut = line[: SUMMARY_CHARS - 1]
    words = cut.rpartition(" ")[0]
    return f"{words if len(words) > SUMMARY_CHARS // 2 else cut}…"


def trust_of(
    change: MemoryChange,
    author: Author,
    before: Trust | None,
    *,
    links: Collection[Link],
    known: Collection[Link],
) -> Trust:
    """The trust of a memory after a change of its links from *known* to *links*.

    A memory from mail stays so until the owner confirms it; then it is the owner's until an
    agent changes it or the owner links other mail. An agent never raises trust; the owner raises
    it by writing a new text.
    """
    if change.confirms_trust and author.is_owner:
        return "user"
    is_confirmed = before == "user" and author.is_owner
    held = {link.to for link in known} if is_confirmed else ()
    if before == "mail" or any(link.is_mail and link.to not in held for link in links):
        return "mail"
    if before is None or (author.is_owner and change.text is not None):
        return lowest_trust(author.trust, change.max_trust)
    return lowest_trust(before, author.trust, change.max_trust)


def expiry_of(
    change: MemoryChange, before: datetime | None, *, is_new_mail: bool, now: datetime
) -> datetime | None:
    """When a memory expires: as requested, or after a default time if it comes from mail now."""
    if change.expires_at is not None or change.clears_expiry:
        return change.expires_at
    if before is None and is_new_mail:
        return (now + MAIL_MEMORY_LIFETIME).replace(microsecond=0)
    return before
