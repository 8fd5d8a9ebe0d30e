"""The door to what agents know, and how it is found."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from postroom.model.memory import (
    Author,
    Keyword,
    Memory,
    MemoryChange,
    MemoryHit,
    MemoryQuery,
    MemoryRow,
    Namespaces,
    RecalledMemory,
    ShelfName,
    Similar,
    TiedMemory,
    Unlearnt,
    Vector,
)
from postroom.model.message import MessageRow
from postroom.model.page import Found
from postroom.model.stored import MessageQuery


class StoresMemories(Protocol):
    """What agents know."""

    async def put_memory(
        self, change: MemoryChange, author: Author, *, now: datetime, is_new_allowed: bool
    ) -> Memory | None:
        """Make a memory or a new version of it; None if there is none and none may be made.

        Raises:
            InvalidInput: a new one has no text.
            NotFound: a link leads to mail that does not exist for the author.
            Forbidden: somebody else than the owner would take away where it comes from.
        """

    async def put_memories(
        self, memories: Sequence[Memory], author: Author, *, now: datetime
    ) -> tuple[int, int]:
        """Take in memories that were exported: how many are new, and how many were changed."""

    async def memory(
        self, namespace: str, key: str, *, now: datetime, history: int
    ) -> Memory | None:
        """A memory with so many of its older versions."""

    async def memories(self, query: MemoryQuery) -> Found[MemoryRow]: ...
    def every_memory(
        self, namespaces: Sequence[str] | None, *, now: datetime
    ) -> AsyncIterator[Memory]:
        """All memories of some namespaces, or of all, in order of arrival."""

    async def remove_memory(self, namespace: str, key: str, *, now: datetime) -> bool: ...
    async def remove_expired(self, *, now: datetime, limit: int) -> int:
        """Remove memories whose time is over and return how many there were."""

    async def recall_about(
        self,
        addresses: Sequence[str],
        mail: Sequence[str],
        namespaces: Namespaces,
        *,
        now: datetime,
        limit: int,
    ) -> tuple[RecalledMemory, ...]:
        """What is known about some people, or was learnt from some messages or threads."""

    async def tied_memories(
        self, text: str, recipients: Sequence[str], namespaces: Namespaces
    ) -> list[TiedMemory]:
        """Memories whose text is in a mail, though it goes to somebody they are not tied to."""


class RecallsMemories(Protocol):
    """Memories found by their words and by their meaning."""

    async def recall(
        self, query: MemoryQuery, terms: Sequence[str], *, vector: Vector | None, model: str
    ) -> Found[MemoryHit]:
        """The most relevant first: by terms, and by a vector of this model if there is one."""

    async def recall_learnt(
        self, query: MemoryQuery, terms: Sequence[str], *, vector: Vector, model: str, few: int
    ) -> Found[MemoryHit] | None:
        """The same, or None where a *few* at most of the namespace have no vector yet."""

    async def recall_keywords(
        self, query: MemoryQuery, keywords: Sequence[Keyword], *, needs_all: bool
    ) -> Found[MemoryHit]: ...
    async def similar_memories(self, memory: Memory, *, now: datetime) -> tuple[Similar, ...]:
        """Memories under other keys of the namespace that say nearly the same."""

    async def recall_mail(
        self, query: MessageQuery, terms: Sequence[str], *, vector: Vector | None, model: str
    ) -> Found[MessageRow]:
        """The same for mail, of that on its shelf; `q` of the query is not looked at.

        Raises:
            NotFound: the inbox or the thread that is named does not exist.
        """

    async def shelve_mail(self, *, limit: int, starts: bool) -> int:
        """Put mail on its shelf, the newest first, and return how much; *starts* makes the shelf.

        It holds the newest 50,000 messages, and none before somebody wanted them there.
        """

    async def has_recall_work(self, *, now: datetime, learns: bool) -> bool:
        """Whether mail waits to be shelved, a text for its vector, or a memory for its end."""

    async def count_unlearnt(self, shelf: ShelfName, *, model: str, most: int) -> int:
        """How many texts of a shelf have no vector of this model, counted up to *most*."""

    async def unlearnt(self, shelf: ShelfName | None, *, limit: int) -> list[Unlearnt]:
        """Texts without a vector, of a shelf or of all, the newest first."""

    async def learnt_by_others(self, shelf: ShelfName, *, model: str, limit: int) -> list[Unlearnt]:
        """Texts of a shelf whose vector was made by another model than this one."""

    async def unlearnt_mail(self, query: MessageQuery, *, model: str, limit: int) -> list[Unlearnt]:
        """Of the newest messages that pass the filters those without a vector of this model.

        Raises:
            NotFound: the inbox or the thread that is named does not exist.
        """

    async def learn(self, model: str, vectors: Sequence[tuple[Unlearnt, Vector]]) -> None: ...
    async def forget_other_models(self, model: str) -> None:
        """Drop vectors that another model made."""
