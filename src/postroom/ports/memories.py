"""Memories, embeddings, and the ranking index of memories and mail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from postroom.model.inbox import Visible
from postroom.model.memory import (
    Author,
    CollectionName,
    Keyword,
    Memory,
    MemoryChange,
    MemoryHit,
    MemoryQuery,
    MemoryRow,
    Namespaces,
    RecalledMemory,
    Similar,
    TiedMemory,
    Unembedded,
    Vector,
)
from postroom.model.message import MessageRow
from postroom.model.page import Found
from postroom.model.storage import MessageQuery


class Embedder(Protocol):
    """Computes vectors of texts; similar texts have similar vectors.

    `model` names the model: vectors of two models cannot be compared.
    """

    @property
    def model(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector for each text.

        Raises:
            ProviderError: the endpoint failed.
        """

    async def close(self) -> None:
        """Close connections."""


class MemoryStore(Protocol):
    """The memories of agents."""

    async def put_memory(
        self, change: MemoryChange, author: Author, *, now: datetime, is_new_allowed: bool
    ) -> Memory | None:
        """Add a memory or a new version of it; None if there is none and none may be added.

        Raises:
            InvalidInput: a new memory has no text.
            NotFound: a link names mail that the author cannot see.
            Forbidden: only the owner may remove the links that say where it comes from.
        """

    async def put_memories(
        self, memories: Sequence[Memory], author: Author, *, now: datetime
    ) -> tuple[int, int]:
        """Import memories; return how many were added and how many were changed."""

    async def memory(
        self, namespace: str, key: str, *, now: datetime, history: int
    ) -> Memory | None:
        """A memory with up to *history* older versions."""

    async def memories(self, query: MemoryQuery) -> Found[MemoryRow]: ...
    def every_memory(self, namespaces: Namespaces, *, now: datetime) -> AsyncIterator[Memory]:
        """All memories of these namespaces, in order of arrival."""

    async def remove_memory(self, namespace: str, key: str, *, now: datetime, by: str = "") -> bool:
        """Remove a memory for the key *by*; False if there is none."""

    async def backfill_mail_words(self, *, limit: int) -> int:
        """Store the mail words of memories of earlier versions; return how many are left."""

    async def remove_expired(self, *, now: datetime, limit: int) -> int:
        """Remove expired memories; return how many."""

    async def recall_about(
        self,
        addresses: Sequence[str],
        mail: Sequence[str],
        namespaces: Namespaces,
        *,
        visible: Visible,
        now: datetime,
        limit: int,
    ) -> tuple[RecalledMemory, ...]:
        """Memories about these addresses, or linked to these messages or threads.

        A memory is about the addresses it names, and those of linked mail in visible inboxes.
        """

    async def tied_memories(
        self,
        text: str,
        recipients: Sequence[str],
        namespaces: Namespaces,
        *,
        visible: Visible,
        now: datetime,
    ) -> list[TiedMemory]:
        """Memories whose text is in this mail, while a recipient is not tied to them."""


class MemoryIndex(Protocol):
    """Search of memories and mail by words and by meaning."""

    async def recall(
        self, query: MemoryQuery, terms: Sequence[str], *, vector: Vector | None, model: str
    ) -> Found[MemoryHit]:
        """The most relevant memories first, by terms and, if given, by vector."""

    async def recall_embedded(
        self,
        query: MemoryQuery,
        terms: Sequence[str],
        *,
        vector: Vector,
        model: str,
        max_unembedded: int,
    ) -> Found[MemoryHit] | None:
        """Like `recall`, or None if more than *max_unembedded* of the namespace lack a vector."""

    async def recall_keywords(
        self, query: MemoryQuery, keywords: Sequence[Keyword], *, needs_all: bool
    ) -> Found[MemoryHit]: ...
    async def similar_memories(self, memory: Memory, *, now: datetime) -> tuple[Similar, ...]:
        """Memories of the namespace with another key and nearly the same meaning."""

    async def recall_mail(
        self, query: MessageQuery, terms: Sequence[str], *, vector: Vector | None, model: str
    ) -> Found[MessageRow]:
        """Like `recall`, for indexed mail; `q` of the query is ignored.

        Raises:
            NotFound: the inbox or thread of the query does not exist.
        """

    async def index_mail(self, *, limit: int, starts: bool) -> int:
        """Add mail to the ranking index, newest first; return how many messages were added.

        The index has the newest 50,000 messages. It is empty until a call with *starts*.
        """

    async def unindexed_mail(self, query: MessageQuery, *, limit: int) -> list[int]:
        """The numbers of the newest messages that match and are not in the ranking index.

        Raises:
            NotFound: the inbox or thread of the query does not exist.
        """

    async def index_messages(self, numbers: Sequence[int]) -> None:
        """Add these messages to the ranking index."""

    async def has_ranking_work(self, *, now: datetime, learns: bool) -> bool:
        """Whether mail is to be indexed, a text to be embedded, or a memory to be removed."""

    async def count_unembedded(self, collection: CollectionName, *, model: str, most: int) -> int:
        """The number of texts of a collection without a vector of this model, up to *most*."""

    async def unembedded(
        self, collection: CollectionName | None, *, limit: int
    ) -> list[Unembedded]:
        """Texts without a vector, of one collection or of all, newest first."""

    async def embedded_by_others(
        self, collection: CollectionName, *, model: str, limit: int
    ) -> list[Unembedded]:
        """Texts of a collection whose vector is of another model."""

    async def unembedded_mail(
        self, query: MessageQuery, *, model: str, limit: int
    ) -> list[Unembedded]:
        """Those of the newest matching messages that have no vector of this model.

        Raises:
            NotFound: the inbox or thread of the query does not exist.
        """

    async def store_vectors(
        self, model: str, vectors: Sequence[tuple[Unembedded, Vector]]
    ) -> None: ...
    async def forget_other_models(self, model: str) -> None:
        """Remove the vectors of other models."""
