"""The store: its parts together, and what belongs to none of them: keys, leases, its own state."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from postroom.errors import MailError
from postroom.model.attachment import BlobKey
from postroom.model.audit import AuditCheck, AuditEntry, AuditQuery
from postroom.model.key import Key
from postroom.model.page import Found, Slice
from postroom.model.stored import Reading
from postroom.ports.bell import Bell
from postroom.store.accounts import SqlAccounts
from postroom.store.events import SqlEvents
from postroom.store.mail import SqlMail
from postroom.store.memories import SqlMemories
from postroom.store.outbox import SqlOutbox
from postroom.store.rules import SqlRules
from postroom.store.seal import Seal
from postroom.store.search import checking as index_checking
from postroom.store.search.find import Finder
from postroom.store.search.jobs import rebuild
from postroom.store.search.merging import merge_once, purge
from postroom.store.sql import audit, blobs, checking, houses, keys, leases
from postroom.store.transaction import Engine, Transaction

_AT_ONCE = 500
_USE_NOTED_EVERY = timedelta(minutes=1)


class ClosableEngine(Engine, Protocol):
    """An engine that also knows how it is, and rings a bell."""

    @property
    def bell(self) -> Bell: ...

    def check(self, tx: Transaction) -> tuple[str, ...]:
        """Let the database check itself."""

    def counters(self, tx: Transaction, tables: Sequence[str]) -> dict[str, int]:
        """The last number that each table has given."""

    def set_counters(self, tx: Transaction, counters: Mapping[str, int]) -> None:
        """Let each table go on after a number."""

    def guard(self) -> None:
        """From now on write nothing once the house has moved away: `write` raises Conflict then."""

    def hurry(self) -> None:
        """Wait for no database that does not answer: we are about to close."""

    async def close(self) -> None: ...


class SqlStore(SqlMail, SqlOutbox, SqlEvents, SqlRules, SqlMemories, SqlAccounts):
    """A store on any engine that speaks SQL. See `ports.store` for what each method promises."""

    _engine: ClosableEngine

    def __init__(self, engine: ClosableEngine, seal: Seal) -> None:
        super().__init__(engine, seal)
        self._finder = Finder()

    @property
    def engine(self) -> ClosableEngine:
        """The database below."""
        return self._engine

    async def add_key(self, key: Key, secret_hash: bytes, *, replaces: bool = True) -> bool:
        return await self._write(
            lambda tx: keys.add_key(tx, key, secret_hash, replaces=replaces),
            is_act=bool,
            about=key.id,
        )

    async def has_key(self, key_id: str) -> bool:
        return await self._engine.read(lambda tx: keys.has_key(tx, key_id))

    async def keys(self, page: Slice) -> Found[Key]:
        return await self._engine.read(lambda tx: keys.list_keys(tx, page))

    async def key_of(self, secret_hash: bytes, now: datetime) -> Key | None:
        key = await self._engine.read(lambda tx: keys.key_of(tx, secret_hash))
        if key is not None and (
            key.last_used_at is None or now - key.last_used_at > _USE_NOTED_EVERY
        ):
            key_id = key.id
            with suppress(MailError):  # who only reads may, whether or not this can be written
                await self._write(lambda tx: keys.mark_used(tx, key_id, now))
        return key

    async def remove_key(self, key_id: str) -> bool:
        return await self._write(lambda tx: keys.remove_key(tx, key_id), is_act=bool)

    async def claim(self, name: str, holder: str, *, now: datetime, lasting: timedelta) -> bool:
        return await self._write(
            lambda tx: leases.claim(tx, name, holder, now=now, lasting=lasting)
        )

    async def release(self, name: str, holder: str) -> None:
        await self._write(lambda tx: leases.release(tx, name, holder))

    async def forget_leases(self, now: datetime) -> None:
        await self._write(lambda tx: leases.forget_past(tx, now))

    async def attend(self, role: str, holder: str, *, now: datetime, lasting: timedelta) -> None:
        await self._write(lambda tx: leases.attend(tx, role, holder, now=now, lasting=lasting))

    async def leave(self, role: str, holder: str) -> None:
        await self._write(lambda tx: leases.leave(tx, role, holder))

    async def is_attended(self, role: str, now: datetime) -> bool:
        return await self._engine.read(lambda tx: leases.is_attended(tx, role, now))

    @property
    def bell(self) -> Bell:
        return self._engine.bell

    async def secret(self) -> bytes:
        row = await self._engine.read(
            lambda tx: tx.one("SELECT value FROM facts WHERE name = 'secret'")
        )
        return bytes(row[0]) if row else b""

    async def house(self) -> str | None:
        return await self._engine.read(houses.name_of)

    async def name_house(self) -> str:
        if found := await self.house():
            return found
        return await self._engine.write(partial(houses.name, new=secrets.token_hex(16)))

    async def rename_house(self, name: str) -> None:
        """Tell a copy from the house that it is one of."""
        await self._engine.write(partial(houses.rename, new=name))

    async def used_blobs(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        return await self._engine.read(lambda tx: blobs.used_blobs(tx, keys))

    async def every_blob(self) -> AsyncIterator[tuple[BlobKey, int]]:
        after = ""
        while True:
            work: Callable[[Transaction], list[tuple[BlobKey, int]]] = partial(
                blobs.blobs_after, after=after, limit=_AT_ONCE
            )
            found = await self._engine.read(work)
            for key, size in found:
                yield key, size
            if len(found) < _AT_ONCE:
                return
            after = found[-1][0]

    async def audit(self, query: AuditQuery) -> Found[AuditEntry]:
        return await self._engine.read(lambda tx: audit.find_entries(tx, query))

    async def check_audit(self) -> AuditCheck:
        examination = audit.Examination(self._seal)
        while await self._engine.read(examination.read):
            pass
        return AuditCheck(examination.number, tuple(examination.problems))

    async def problems(self) -> tuple[str, ...]:
        found = await self._engine.read(
            lambda tx: (
                *self._engine.check(tx),
                *checking.problems(tx),
            )
        )
        if of_index := await self._index_problems():
            found += (*of_index, "`postroom verify --repair` makes the search index anew")
        return found + (await self.check_audit()).problems

    async def _index_problems(self) -> tuple[str, ...]:
        found = await self._engine.read(index_checking.check_membership)
        for segment in await self._engine.read(index_checking.live_numbers):
            found += await self._engine.read(partial(index_checking.check_segment, segment=segment))
        return found

    async def readings(self, version: int, after: int, limit: int) -> list[Reading]:
        return await self._engine.read(lambda tx: checking.readings(tx, version, after, limit))

    async def tidy(self) -> bool:
        return await merge_once(self._engine)

    async def purge(self) -> None:
        await purge(self._engine)

    async def repair(self) -> int:
        if found := await self._index_problems():
            await self._engine.write(rebuild)
            while await merge_once(self._engine):
                pass
        return len(found)

    async def ping(self) -> None:
        await self._engine.write(_leave_a_mark)

    async def count_messages(self) -> int:
        """How many messages there are."""
        row = await self._engine.read(lambda tx: tx.one("SELECT count(*) FROM messages"))
        return int(row[0]) if row else 0

    def hurry(self) -> None:
        self._engine.hurry()

    async def close(self) -> None:
        await self._engine.close()


def _leave_a_mark(tx: Transaction) -> None:
    """Write something: a store that can only be read is not ready."""
    tx.run("DELETE FROM facts WHERE name = 'mark'")
    tx.run("INSERT INTO facts (name, value) VALUES ('mark', :value)", value=b"\x01")
