"""The part of the store that keeps memories and ranks memories and mail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from postroom.model.mail.storage import MessageQuery
from postroom.model.memory import Memory, Namespaces, Unembedded
from postroom.model.page import Slice
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

P = ParamSpec("P")
T = TypeVar("T")


def ranked(
    search: Callable[[RankingIndex], Callable[Concatenate[Transaction, P], T]],
) -> Callable[Concatenate[MemoryStore, P], Coroutine[Any, Any, T]]:
    """Declare a method that runs a search of the ranking index in a read transaction."""

    async def method(self: MemoryStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.engine.read(lambda tx: search(self._ranking)(tx, *args, **kwargs))

    return method


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
        self._ranking = RankingIndex(self._searcher)  # shared with the copies that `by` makes

    save_memory = writes(
        memory_writes.save_memory, audit_if=is_found, target=lambda change, *_, **__: change.key
    )
    remove_memory = writes(
        sql_memories.remove_memory, audit_if=bool, target=lambda _namespace, key, **_: key
    )
    import_memories = writes(memory_writes.import_memories)
    memory = reads(sql_memories.get_memory)
    memories = reads(sql_memories.list_memories)
    namespaces = reads(sql_memories.list_namespaces)
    remove_expired = writes_unaudited(sql_memories.remove_expired)
    memories_about = reads(memory_links.memories_about)
    tied_memories = reads(memory_links.tied_memories)
    has_ranking_work = reads(_has_ranking_work)
    store_vectors = writes_unaudited(ranking_index.store_vectors)
    index_messages = writes_unaudited(ranking_index.index_messages)
    count_unembedded = reads(ranking_index.count_unembedded)
    unembedded = reads(ranking_index.unembedded)
    embedded_by_others = reads(ranking_index.embedded_by_others)
    search_memories = ranked(lambda index: index.memories.find)
    search_embedded_memories = ranked(lambda index: index.memories.find_embedded)
    search_keywords = ranked(lambda index: index.memories.find_keywords)
    similar_memories = ranked(lambda index: index.memories.find_similar)
    rank_mail = ranked(lambda index: index.mail.find)
    unindexed_mail = ranked(lambda index: index.mail.find_unindexed)

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

    async def remove_vectors_of_other_models(self, model: str) -> None:
        found = await self.engine.read(
            lambda tx: ranking_index.collections_of_other_models(tx, model)
        )
        if found:
            await self.engine.write(lambda tx: ranking_index.delete_vectors(tx, found))
