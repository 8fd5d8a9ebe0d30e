"""Copies all rows of one database to another, table by table, in the order of their keys.

A migration can be interrupted and run again: rows that are there are not copied again, and the
target cannot be opened before it is complete. At the end the rows of both sides are hashed, and a
table that differs, because the source was written to, is copied again. Source and target can never
both be opened, unless one of them is a backup.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import apsw
import msgspec

from postroom.errors import Conflict
from postroom.store.maintenance.lifecycle import (
    INCOMPLETE,
    LEASE_LOST,
    Kind,
    MigrationLease,
    has_migrated_to,
    mark_backup,
    mark_migrated,
    refuse_migrated,
    state_of,
    unmark_migrated,
)
from postroom.store.sql.outbox.queue import restore_backup
from postroom.store.sqlite.engine import migrate
from postroom.store.transaction import Engine, Row, Transaction

_AT_ONCE = 200
_APART = frozenset({"metadata", "leases"})
"""Metadata is written last; leases are not copied."""


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table, and those of its key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def key_of(self, row: Row) -> Row:
        return tuple(row[self.columns.index(column)] for column in self.key)


def tables() -> list[Table]:
    """Every table that is copied, read from the schema."""
    database = apsw.Connection(":memory:")
    migrate(database)
    rows = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    names = sorted(str(row[0]) for row in rows)
    ours = [name for name in names if name not in _APART and not name.startswith("sqlite_")]
    return [_table(database, name) for name in ours]


def _table(database: apsw.Connection, name: str) -> Table:
    columns = database.execute(f"PRAGMA table_info({name})").fetchall()
    key = [str(row[1]) for row in sorted(columns, key=lambda row: int(str(row[5]))) if row[5]]
    if not key:
        indexes = database.execute(f"PRAGMA index_list({name})").fetchall()
        unique = next((str(row[1]) for row in indexes if row[2]), None)
        named = database.execute(f"PRAGMA index_info({unique})") if unique else ()
        key = [str(row[2]) for row in named] or [str(row[1]) for row in columns]
    return Table(name, tuple(str(row[1]) for row in columns), tuple(key))


async def digest_rows(engine: Engine, table: Table) -> tuple[int, bytes]:
    """The number of rows, and a hash of all rows in order."""
    digest, count, last = hashlib.sha256(), 0, None
    while rows := await engine.read(partial(read_page, table=table, after=last)):
        for row in rows:
            digest.update(msgspec.msgpack.encode(row))
        count, last = count + len(rows), table.key_of(rows[-1])
    return count, digest.digest()


def count_rows(tx: Transaction, table: Table) -> int:
    row = tx.one(f"SELECT count(*) FROM {table.name}")
    return int(row[0]) if row else 0


def last_key(tx: Transaction, table: Table) -> Row | None:
    order = ", ".join(f"{column} DESC" for column in table.key)
    return tx.one(f"SELECT {', '.join(table.key)} FROM {table.name} ORDER BY {order} LIMIT 1")


def read_page(tx: Transaction, table: Table, after: Row | None) -> list[Row]:
    """The next rows after a key, or the first rows."""
    names, key = ", ".join(table.columns), ", ".join(table.key)
    where, params = "1 = 1", dict[str, object]()
    if after is not None:
        params = {f"after{place}": value for place, value in enumerate(after)}
        where = f"({key}) > ({', '.join(f':{name}' for name in params)})"
    return tx.all(
        f"SELECT {names} FROM {table.name} WHERE {where} ORDER BY {key} LIMIT :limit",
        **params,
        limit=_AT_ONCE,
    )


def insert_rows(tx: Transaction, table: Table, rows: list[Row]) -> None:
    """Insert rows; existing ones are not changed."""
    values = ", ".join(f":{column}" for column in table.columns)
    tx.many(
        f"""INSERT INTO {table.name} ({", ".join(table.columns)}) VALUES ({values})
            ON CONFLICT DO NOTHING""",
        [dict(zip(table.columns, row, strict=True)) for row in rows],
    )


def clear(tx: Transaction, table: Table) -> None:
    """Remove every row."""
    tx.run(f"DELETE FROM {table.name}")


T = TypeVar("T")
_ROUNDS = 4
_TOKEN_BYTES = 16
_APPENDED = frozenset({"audit"})
"""Triggers keep rows from being removed from these tables."""

Report = Callable[[int, float], None]
"""Called with the number of rows that are done, and their share of all."""

BEGUN = "SELECT value FROM metadata WHERE name = 'migrating'"
BEGIN = "INSERT INTO metadata (name, value) VALUES ('migrating', :mark)"
METADATA = """
    SELECT name, value FROM metadata
     WHERE name NOT IN ('migrating', 'migrated', 'migrated_to', 'backup', 'installation')
"""
INSERT_METADATA = "INSERT INTO metadata (name, value) VALUES (:name, :value)"


class Migration:
    """A migration from one database to another, or a copy that is a backup."""

    def __init__(
        self, source: Engine, target: Engine, to: Kind, place: str, *, is_copy: bool = False
    ) -> None:
        self._source, self._target = source, target
        self._to, self._place, self._is_copy = to, place, is_copy
        self._tables = tables()
        self._unequal: list[Table] | None = None
        self._lease = MigrationLease(target)
        self._mark = self._token = b""

    async def check(self) -> None:
        """Check that the target is empty, or partly filled from the same source.

        Raises:
            Conflict: it has other rows, or the source was migrated to another target.
        """
        origin = await self._source.read(state_of)
        await self._target.read(partial(self._earlier_mark, origin=origin))

    async def is_from_backup(self) -> bool:
        """Whether the source is a backup, so that its installation may have sent mail since."""
        return "backup" in await self._source.read(state_of)

    @asynccontextmanager
    async def target_lock(self) -> AsyncIterator[None]:
        """Mark the target with its source, and hold the lease on it.

        Raises:
            Conflict: like `check`, or another run has the lease.
        """
        origin = await self._source.read(state_of)
        new = origin["secret"] + secrets.token_bytes(_TOKEN_BYTES)

        def begin(tx: Transaction) -> bytes:
            self._lease.renew(tx)
            mark = self._earlier_mark(tx, origin)
            if mark is None:
                tx.run(BEGIN, mark=new)
            return mark or new

        async with self._lease:
            self._mark = await self._target.write(begin)
            self._token = self._mark.removeprefix(origin["secret"])
            yield

    def _earlier_mark(self, tx: Transaction, origin: dict[str, bytes]) -> bytes | None:
        """The mark of an earlier run in the target: the secret of the source, and a token."""
        row = tx.one(BEGUN)
        mark = bytes(row[0]) if row else None
        is_ours = mark is not None and mark.startswith(origin["secret"])
        is_last_step = is_ours and has_migrated_to(
            origin, (mark or b"").removeprefix(origin["secret"])
        )
        if is_last_step and self._is_copy:
            raise Conflict(INCOMPLETE)
        if not is_last_step and not self._is_copy:
            refuse_migrated(origin)
        if not is_ours and (mark is not None or any(count_rows(tx, t) for t in self._tables)):
            raise Conflict("the target is in use; name one that is empty")
        return mark

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        """Write to the target, if the mark and the lease are still ours."""

        def ours(tx: Transaction) -> T:
            row = tx.one(BEGUN)
            if row is None or bytes(row[0]) != self._mark:
                raise Conflict(LEASE_LOST)
            self._lease.renew(tx)
            return work(tx)

        return await self._target.write(ours)

    async def copy_until_equal(
        self, between: Callable[[], Awaitable[T]], report: Report
    ) -> tuple[int, T]:
        """Copy until both sides are equal; return the number of rows, and the result of *between*.

        *between* copies the blobs of the rows; rows that arrive meanwhile need another round.

        Raises:
            Conflict: they still differ after several rounds.
        """
        for _ in range(_ROUNDS):
            rows, result = await self.copy(report), await between()
            if await self.is_equal():
                return rows, result
        names = ", ".join(table.name for table in self._unequal or ())
        raise Conflict(
            f"the source is being written to ({names} still differ); stop its servers and run this "
            "again. If none is running, the target was written to: begin again with an empty one"
        )

    async def copy(self, report: Report) -> int:
        """Copy the missing rows; return how many rows the target has.

        In later rounds, tables that differ are copied again; one that only grows is continued.
        """
        for table in self._unequal or ():
            if table.name not in _APPENDED:
                await self._write(partial(clear, table=table))
        counts = [await self._source.read(partial(count_rows, table=t)) for t in self._tables]
        total, done = sum(counts), 0
        for table in self._tables:
            done += await self._copy(
                table, lambda count: report(count, count / max(total, count)), done
            )
        return done

    async def _copy(self, table: Table, report: Callable[[int], None], before: int) -> int:
        """Copy the missing rows of a table; return how many the target has."""
        last = await self._target.read(partial(last_key, table=table))
        count = await self._target.read(partial(count_rows, table=table))
        while rows := await self._source.read(partial(read_page, table=table, after=last)):
            await self._write(partial(insert_rows, table=table, rows=rows))
            last = table.key_of(rows[-1])
            count += len(rows)
            report(before + count)
        return count

    async def is_equal(self) -> bool:
        """Whether all tables are equal on both sides."""
        self._unequal = [
            table
            for table in self._tables
            if await digest_rows(self._source, table) != await digest_rows(self._target, table)
        ]
        return not self._unequal

    async def finish(self) -> int:
        """Activate the target: copy counters and metadata.

        The source cannot be opened any more, unless it is a backup or this is a copy, which becomes
        a backup. Returns how many mails of a backup may have been sent since: they are held.

        Raises:
            Conflict: the source was migrated elsewhere or written to since it was compared, or
                another run has the target.
        """
        is_backup = await self.is_from_backup()
        if not self._is_copy and not is_backup:
            # Before the target can be opened, so that never both can.
            await self._source.write(
                lambda tx: mark_migrated(tx, state_of(tx), self._token, self._to, self._place)
            )
            await self._check_equal()
        counters = await self._source.read(self._last_numbers)
        metadata = await self._source.read(lambda tx: tx.all(METADATA))

        def take_over(tx: Transaction) -> int:
            self._target.set_counters(tx, counters)
            tx.run("DELETE FROM metadata")
            tx.many(INSERT_METADATA, [{"name": name, "value": value} for name, value in metadata])
            if self._is_copy:
                return mark_backup(tx)
            return restore_backup(tx) if is_backup else 0

        return await self._write(take_over)

    async def _check_equal(self) -> None:
        """Compare once more, now that the source cannot be written to. Raises Conflict."""
        if not await self.is_equal():
            await self._source.write(lambda tx: unmark_migrated(tx, state_of(tx), self._token))
            raise Conflict("the source was written to; stop its servers and run this again")

    def _last_numbers(self, tx: Transaction) -> dict[str, int]:
        counted = [table.name for table in self._tables if table.key == ("number",)]
        highest = {name: tx.one(f"SELECT max(number) FROM {name}") for name in counted}
        present = {name: int(row[0]) for name, row in highest.items() if row and row[0]}
        return present | self._source.counters(tx, counted)
