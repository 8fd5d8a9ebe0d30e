"""The part of the store that keeps memories and ranks memories and mail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from postroom.model.mail.message import MessageRow
from postroom.model.mail.storage import MessageQuery
from postroom.model.memory import (
    Author,
    EmbeddedQuery,
    Keyword,
    Memory,
    MemoryChange,
    MemoryHit,
    MemoryQuery,
    Namespaces,
    Similar,
    Unembedded,
    Vector,
)
from postroom.model.page import Found, Slice
from postroom.model.view import EVERYTHING
from postroom.store.audited_store import (
    AuditedStore,
    AuditHmac,
    is_found,
    reads,
    writes,
    writes_unaudited,
)
from postroom.store.ranking import index as ranking_index
from postroom.store.ranking.index import RankingIndex
from postroom.store.search.index import IndexSearcher
from postroom.store.sql.memories import mail_texts, memory_links, memory_writes
from postroom.store.sql.memories import memories as sql_memories
from postroom.store.sql.messages.message_search import matching_numbers
from postroom.store.transaction import Engine, Transaction

_AT_ONCE = 500


def _has_ranking_work(tx: Transaction, now: datetime, *, can_embed: bool) -> bool:
    return (
        sql_memories.has_expired(tx, now)
        or mail_texts.has_missing_digests(tx)
        or ranking_index.has_unindexed(tx)
        or (can_embed and ranking_index.has_unembedded(tx))
    )


class MemoryStore(AuditedStore):
    """Memories, and the ranking index of memories and mail. Only a ranked search imports numpy."""

    def __init__(self, engine: Engine, audit_hmac: AuditHmac) -> None:
        super().__init__(engine, audit_hmac)
        self._searcher = IndexSearcher()
        self._ranking = RankingIndex()  # shared with the copies that `by` makes

    import_memories = writes(memory_writes.import_memories)
    memory = reads(sql_memories.get_memory)
    memories = reads(sql_memories.list_memories)
    namespaces = reads(sql_memories.list_namespaces)
    remove_expired = writes_unaudited(sql_memories.remove_expired)
    memories_about = reads(memory_links.memories_about)
    tied_memories = reads(memory_links.tied_memories)
    has_ranking_work = reads(_has_ranking_work)
    index_messages = writes_unaudited(ranking_index.index_messages)
    count_unembedded = reads(ranking_index.count_unembedded)
    unembedded = reads(ranking_index.unembedded)
    embedded_by_others = reads(ranking_index.embedded_by_others)

    async def save_memory(
        self, change: MemoryChange, author: Author, *, now: datetime, is_new_allowed: bool
    ) -> Memory | None:
        put = partial(
            memory_writes.save_memory,
            change=change,
            author=author,
            now=now,
            is_new_allowed=is_new_allowed,
        )
        return await self.write(put, audit_if=is_found, target=change.key)

    async def remove_memory(self, namespace: str, key: str, *, now: datetime, by: str = "") -> bool:
        return await self.write(
            lambda tx: sql_memories.remove_memory(tx, namespace, key, now, by),
            audit_if=bool,
            target=key,
        )

    async def all_memories(self, namespaces: Namespaces, *, now: datetime) -> AsyncIterator[Memory]:
        """All memories of these namespaces, in order of arrival."""
        read, after = partial(sql_memories.memories_after, namespaces=namespaces, now=now), 0
        while found := await self.engine.read(partial(read, after=after, limit=_AT_ONCE)):
            for _, memory in found:
                yield memory
            after = found[-1][0]

    async def store_missing_mail_digests(self, *, limit: int) -> int:
        """Store the mail words of memories of earlier versions; return how many are left."""
        if not await self.engine.read(mail_texts.has_missing_digests):
            return 0
        return await self.engine.write(
            lambda tx: mail_texts.store_missing_digests(tx, EVERYTHING, limit)
        )

    async def search_memories(
        self, query: MemoryQuery, embedded: EmbeddedQuery
    ) -> Found[MemoryHit]:
        """The most relevant memories first, by terms and, if given, by vector."""
        return await self.engine.read(lambda tx: self._ranking.memories.find(tx, query, embedded))

    async def search_embedded_memories(
        self, query: MemoryQuery, embedded: EmbeddedQuery, *, max_unembedded: int
    ) -> Found[MemoryHit] | None:
        """Like `search_memories`, or None if 1 to *max_unembedded* memories lack a vector."""
        return await self.engine.read(
            lambda tx: self._ranking.memories.find_embedded(tx, query, embedded, max_unembedded)
        )

    async def search_keywords(
        self, query: MemoryQuery, keywords: Sequence[Keyword], *, needs_all: bool
    ) -> Found[MemoryHit]:
        return await self.engine.read(
            lambda tx: self._ranking.memories.find_keywords(
                tx, query, keywords, needs_all=needs_all
            )
        )

    async def similar_memories(self, memory: Memory, *, now: datetime) -> tuple[Similar, ...]:
        """Memories of the namespace with another key and nearly the same meaning."""
        query = MemoryQuery(memory.namespace, now)
        return await self.engine.read(
            lambda tx: self._ranking.memories.find_similar(tx, memory, query)
        )

    async def rank_mail(self, query: MessageQuery, embedded: EmbeddedQuery) -> Found[MessageRow]:
        """Like `search_memories`, for indexed mail; `q` is ignored. Raises NotFound."""
        return await self.engine.read(
            lambda tx: self._ranking.mail.find(tx, self._searcher, query, embedded)
        )

    async def unindexed_mail(self, query: MessageQuery, *, limit: int) -> list[int]:
        """The newest messages that match and are not in the ranking index. Raises NotFound."""
        return await self.engine.read(
            lambda tx: self._ranking.mail.find_unindexed(tx, self._searcher, query, limit)
        )

    async def index_mail(self, *, limit: int, starts: bool) -> int:
        """Add mail to the ranking index, newest first; return how many messages were added.

        The index has the newest 50,000 messages. It is empty until a call with *starts*.
        """
        if not await self.engine.read(lambda tx: ranking_index.has_unindexed(tx, starts=starts)):
            return 0
        return await self.engine.write(lambda tx: ranking_index.index_mail(tx, limit))

    async def unembedded_mail(
        self, query: MessageQuery, *, model: str, limit: int
    ) -> list[Unembedded]:
        """Those of the newest matches that have no vector of this model. Raises NotFound."""
        newest = replace(query, q=None, page=Slice(limit=limit))
        return await self.engine.read(
            lambda tx: ranking_index.unembedded_mail(
                tx, matching_numbers(tx, newest, self._searcher), model
            )
        )

    async def store_vectors(self, model: str, vectors: Sequence[tuple[Unembedded, Vector]]) -> None:
        await self.engine.write(lambda tx: ranking_index.store_vectors(tx, model, vectors))

    async def remove_vectors_of_other_models(self, model: str) -> None:
        found = await self.engine.read(
            lambda tx: ranking_index.collections_of_other_models(tx, model)
        )
        if found:
            await self.engine.write(lambda tx: ranking_index.delete_vectors(tx, found))
