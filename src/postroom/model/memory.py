"""What an agent knows: keyed notes with where they come from and how far to trust them."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from postroom.model.inbox import Visible
from postroom.model.page import Slice

Trust = Literal["user", "agent", "mail"]
"""Who vouches for a memory: its owner, an agent, or nobody, since it came out of mail."""

_LEAST_FIRST: tuple[Trust, ...] = ("mail", "agent", "user")

Namespaces = frozenset[str] | None
"""The namespaces that a caller may see; None is all of them."""

Vector = bytes
"""The meaning of a text: a direction, as little-endian 32-bit floats."""

ShelfName = tuple[str, str]
"""What is searched as a whole: the memories of a namespace, or the mail."""

MAIL_SHELF: ShelfName = ("mail", "")

DEFAULT_NAMESPACE = "default"
RESERVED_KEYS = frozenset({"search", "fulltext", ".", ".."})
"""Keys that would be the path of something else, or of nothing."""

MAIL_KEPT = timedelta(days=365)
"""How long what came out of mail is believed, unless somebody says otherwise."""

SUMMARY_CHARS = 120

_MAIL_ID = re.compile("(?:msg|thr)_[0-9a-z]{26}")
_ADDRESS = re.compile(
    r"""[^\s@<>()\[\]",;:\\]{1,64}@(?:[^\W_](?:[^\W_]|-){0,62}\.)*[^\W_](?:[^\W_]|-){0,62}"""
)
"""What a link leads to is told by its form; what has neither is the key of a memory."""


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
    """A memory under another key that says nearly the same."""

    key: str
    summary: str
    similarity: float


@dataclass(frozen=True, slots=True)
class MemoryVersion:
    """What a memory said before."""

    version: int
    summary: str
    text: str
    tags: tuple[str, ...]
    trust: Trust
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Memory:
    """A note kept under a key. `stale`: the mail it was learnt from is gone."""

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
        """What became of it when it was written."""
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
    """A memory that is no more."""

    namespace: str
    key: str
    deleted: bool = True


@dataclass(frozen=True, slots=True)
class Unlearnt:
    """A text without a vector, and where it stands."""

    shelf: int
    leaf: int
    text: str


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A memory shown beside mail: what we noted before, not what the mail says."""

    namespace: str
    key: str
    summary: str
    about: str
    trust: Trust
    updated_at: datetime
    recalled: bool = True
    stale: bool | None = None


@dataclass(frozen=True, slots=True)
class TiedMemory:
    """A memory about some people whose text is on its way to others."""

    namespace: str
    key: str
    about: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """What somebody says of a memory; None leaves a thing as it is.

    `clears_expiry` lets it last for ever. `vouches` is how the owner lifts what came out of mail.
    `at_most` keeps trust low: what a rule learns, or what was low where it was exported. What was
    exported may also link to mail that is not here, so `follows_links` is False, and `is_stale`.
    """

    namespace: str
    key: str
    text: str | None = None
    summary: str | None = None
    tags: tuple[str, ...] | None = None
    links: tuple[Link, ...] | None = None
    expires_at: datetime | None = None
    clears_expiry: bool = False
    vouches: bool = False
    at_most: Trust = "user"
    follows_links: bool = True
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes: the owner or somebody else, and the mail they may refer to."""

    is_owner: bool
    visible: Visible = None

    @property
    def trust(self) -> Trust:
        return "user" if self.is_owner else "agent"


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """Which memories of one namespace; None and () ask for nothing."""

    namespace: str
    now: datetime
    tags: tuple[str, ...] = ()
    linked_to: str | None = None
    since: datetime | None = None
    page: Slice = Slice()


@dataclass(frozen=True, slots=True)
class Keyword:
    """Something to look for in full text: all of its terms, or a phrase as it is written."""

    terms: tuple[str, ...]
    phrase: str | None = None


def shelf_of(namespace: str) -> ShelfName:
    """The shelf of a namespace."""
    return ("memories", namespace)


def lowest(*trusts: Trust) -> Trust:
    """The least trust of several."""
    return min(trusts, key=_LEAST_FIRST.index)


def summary_of(text: str) -> str:
    """The beginning of a text, for a memory that was given no summary."""
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
    """How far to trust a memory after a change of its links from *known* to *links*.

    What came out of mail stays marked until the owner vouches for it, and then is the owner's
    until an agent changes it or the owner names other mail. An agent never lifts anything; the
    owner lifts what they write anew.
    """
    if change.vouches and author.is_owner:
        return "user"
    is_vouched_for = before == "user" and author.is_owner
    held = {link.to for link in known} if is_vouched_for else ()
    if before == "mail" or any(link.is_mail and link.to not in held for link in links):
        return "mail"
    if before is None or (author.is_owner and change.text is not None):
        return lowest(author.trust, change.at_most)
    return lowest(before, author.trust, change.at_most)


def expiry_of(
    change: MemoryChange, before: datetime | None, *, is_new_mail: bool, now: datetime
) -> datetime | None:
    """When a memory ends: as somebody says, and what has just come out of mail in a year."""
    if change.expires_at is not None or change.clears_expiry:
        return change.expires_at
    if before is None and is_new_mail:
        return (now + MAIL_KEPT).replace(microsecond=0)
    return before


def cut_text(memory: Memory, offset: int, most: int) -> Memory:
    """A memory with a part of its text, and where to read on."""
    total = len(memory.text)
    end = min(total, offset + most)
    if offset == 0 and end == total:
        return memory
    return replace(
        memory,
        text=memory.text[offset:end],
        truncated=True if end < total else None,
        total_chars=total,
        next_offset=end if end < total else None,
    )
