"""The part of the store that remembers. See `ports.memories` for what each method promises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

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
from postroom.model.page import Found, Slice
from postroom.model.stored import MessageQuery
from postroom.store.audited import Audited, was_found
from postroom.store.recall import mail, shelves
from postroom.store.seal import Seal
from postroom.store.search.find import Finder
from postroom.store.sql import (
    confidences,
    memories,
    memory_links,
    memory_listing,
    memory_removal,
    memory_writing,
)
from postroom.store.sql.finding import matching_numbers
from postroom.store.transaction import Engine

if TYPE_CHECKING:
    from postroom.store.recall.library import Library

_AT_ONCE = 500


class SqlMemories(Audited):
    """Memories on any engine that speaks SQL. Only a search loads numpy."""

    _finder: Finder

    def __init__(self, engine: Engine, seal: Seal) -> None:
        super().__init__(engine, seal)
        self._libraries: list[Library] = []

    @property
    def _library(self) -> Library:
        """Made by the first search, for this store and for everyone who acts through it."""
        from postroom.store.recall.library import Library

        if not self._libraries:
            self._libraries.append(Library())
        return self._libraries[0]

    async def put_memory(
        self, change: MemoryChange, author: Author, *, now: datetime, is_new_allowed: bool
    ) -> Memory | None:
        return await self._write(
            lambda tx: memory_writing.put_memory(
                tx, change, author, now, is_new_allowed=is_new_allowed
            ),
            is_act=was_found,
            about=change.key,
        )

    async def put_memories(
        self, given: Sequence[Memory], author: Author, *, now: datetime
    ) -> tuple[int, int]:
        return await self._write(lambda tx: memory_writing.put_memories(tx, given, author, now))

    async def memory(
        self, namespace: str, key: str, *, now: datetime, history: int
    ) -> Memory | None:
        return await self._engine.read(
            lambda tx: memories.get_memory(tx, namespace, key, now, history=history)
        )

    async def memories(self, query: MemoryQuery) -> Found[MemoryRow]:
        return await self._engine.read(lambda tx: memory_listing.list_memories(tx, query))

    async def every_memory(
        self, namespaces: Sequence[str] | None, *, now: datetime
    ) -> AsyncIterator[Memory]:
        after = 0
        while True:
            work = partial(
                memory_listing.memories_after,
                namespaces=namespaces,
                after=after,
                limit=_AT_ONCE,
                now=now,
            )
            found = await self._engine.read(work)
            for _, memory in found:
                yield memory
            if len(found) < _AT_ONCE:
                return
            after = found[-1][0]

    async def remove_memory(self, namespace: str, key: str, *, now: datetime) -> bool:
        return await self._write(
            lambda tx: memory_removal.remove_memory(tx, namespace, key, now), is_act=bool, about=key
        )

    async def remove_expired(self, *, now: datetime, limit: int) -> int:
        return await self._engine.write(lambda tx: memory_removal.remove_expired(tx, now, limit))

    async def recall_about(
        self,
        addresses: Sequence[str],
        mail: Sequence[str],
        namespaces: Namespaces,
        *,
        now: datetime,
        limit: int,
    ) -> tuple[RecalledMemory, ...]:
        return await self._engine.read(
            lambda tx: memory_links.recall_about(
                tx, addresses, mail, namespaces, now=now, limit=limit
            )
        )

    async def tied_memories(
        self, text: str, recipients: Sequence[str], namespaces: Namespaces
    ) -> list[TiedMemory]:
        return await self._engine.read(
            lambda tx: confidences.tied_memories(tx, text, recipients, namespaces)
        )

    async def recall(
        self, query: MemoryQuery, terms: Sequence[str], *, vector: Vector | None, model: str
    ) -> Found[MemoryHit]:
        from postroom.store.recall.memories import find_memories
        from postroom.store.recall.ranking import Question

        question = Question(terms, vector, model)
        library = self._library
        return await self._engine.read(lambda tx: find_memories(tx, library, query, question))

    async def recall_learnt(
        self, query: MemoryQuery, terms: Sequence[str], *, vector: Vector, model: str, few: int
    ) -> Found[MemoryHit] | None:
        from postroom.store.recall.memories import find_learnt
        from postroom.store.recall.ranking import Question

        question = Question(terms, vector, model)
        library = self._library
        return await self._engine.read(lambda tx: find_learnt(tx, library, query, question, few))

    async def recall_keywords(
        self, query: MemoryQuery, keywords: Sequence[Keyword], *, needs_all: bool
    ) -> Found[MemoryHit]:
        from postroom.store.recall.memories import find_keywords

        library = self._library
        return await self._engine.read(
            lambda tx: find_keywords(tx, library, query, keywords, needs_all=needs_all)
        )

    async def similar_memories(self, memory: Memory, *, now: datetime) -> tuple[Similar, ...]:
        from postroom.store.recall.memories import find_similar

        library = self._library
        query = MemoryQuery(memory.namespace, now)
        return await self._engine.read(lambda tx: find_similar(tx, library, memory, query))

    async def has_recall_work(self, *, now: datetime, learns: bool) -> bool:
        return await self._engine.read(
            lambda tx: (
                memory_removal.has_expired(tx, now)
                or mail.has_unshelved(tx)
                or (learns and shelves.has_unlearnt(tx))
            )
        )

    async def recall_mail(
        self, query: MessageQuery, terms: Sequence[str], *, vector: Vector | None, model: str
    ) -> Found[MessageRow]:
        from postroom.store.recall.mail_search import find_mail
        from postroom.store.recall.ranking import Question

        question = Question(terms, vector, model)
        library, finder = self._library, self._finder
        return await self._engine.read(lambda tx: find_mail(tx, library, finder, query, question))

    async def shelve_mail(self, *, limit: int, starts: bool) -> int:
        if not await self._engine.read(lambda tx: mail.has_unshelved(tx, starts=starts)):
            return 0
        return await self._engine.write(lambda tx: mail.shelve_mail(tx, limit))

    async def count_unlearnt(self, shelf: ShelfName, *, model: str, most: int) -> int:
        return await self._engine.read(lambda tx: shelves.count_unlearnt(tx, shelf, model, most))

    async def unlearnt(self, shelf: ShelfName | None, *, limit: int) -> list[Unlearnt]:
        return await self._engine.read(lambda tx: shelves.unlearnt(tx, shelf, limit))

    async def learnt_by_others(self, shelf: ShelfName, *, model: str, limit: int) -> list[Unlearnt]:
        return await self._engine.read(lambda tx: shelves.learnt_by_others(tx, shelf, model, limit))

    async def unlearnt_mail(self, query: MessageQuery, *, model: str, limit: int) -> list[Unlearnt]:
        newest = replace(query, q=None, page=Slice(limit=limit))
        finder = self._finder
        return await self._engine.read(
            lambda tx: mail.unlearnt_mail(tx, matching_numbers(tx, newest, finder), model)
        )

    async def learn(self, model: str, vectors: Sequence[tuple[Unlearnt, Vector]]) -> None:
        from postroom.store.recall.vectors import pack_vector

        packed = [(leaf, pack_vector(vector)) for leaf, vector in vectors]
        await self._engine.write(lambda tx: shelves.learn(tx, model, packed))

    async def forget_other_models(self, model: str) -> None:
        found = await self._engine.read(lambda tx: shelves.shelves_of_other_models(tx, model))
        if found:
            await self._engine.write(lambda tx: shelves.forget_vectors(tx, found))
