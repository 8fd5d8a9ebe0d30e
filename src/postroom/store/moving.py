"""All rows of one database into another, table by table, in the order of their keys.

It can be stopped at any time: what is there already is not copied again, and nobody can open the
target before it is whole. In the end both sides are counted and hashed, and a table that differs,
because somebody wrote, is copied once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import apsw
import msgspec

from postroom.errors import Conflict
from postroom.store.sqlite.migrations import migrate
from postroom.store.store import ClosableEngine
from postroom.store.transaction import Row, Transaction

T = TypeVar("T")
_AT_ONCE = 200
_ROUNDS = 4
_APART = frozenset({"facts", "leases"})
"""Facts are written last, leases not at all."""

_APPENDED = frozenset({"audit"})
"""No statement can take anything out of these."""

Tell = Callable[[int, float], None]
"""Told how many are done, and which share of all that is."""

BEGUN = "SELECT value FROM facts WHERE name = 'moving'"
BEGIN = "INSERT INTO facts (name, value) VALUES ('moving', :secret)"
SECRET = "SELECT value FROM facts WHERE name = 'secret'"  # noqa: S105 - the name of a fact
FACTS = "SELECT name, value FROM facts WHERE name <> 'moving'"
PUT_FACT = "INSERT INTO facts (name, value) VALUES (:name, :value)"


@dataclass(frozen=True, slots=True)
class Table:
    """What a table has: its columns, and those of its key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


def tables() -> list[Table]:
    """Every table that is moved, as the schema says."""
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


class Move:
    """One house on its way from one database to another."""

    def __init__(self, source: ClosableEngine, target: ClosableEngine) -> None:
        self._source, self._target = source, target
        self._tables = tables()
        self._wrong: list[Table] | None = None

    async def check(self) -> None:
        """Refuse a target that has rows, unless they are some of the source's.

        Raises:
            Conflict: it has others.
        """
        await self._target.read(partial(self._is_begun, secret=await self._secret()))

    async def begin(self) -> None:
        """Remember in the target whose rows it gets. Raises Conflict like `check`."""
        secret = await self._secret()

        def begin(tx: Transaction) -> None:
            if not self._is_begun(tx, secret):
                tx.run(BEGIN, secret=secret)

        await self._target.write(begin)

    async def _secret(self) -> bytes:
        row = await self._source.read(lambda tx: tx.one(SECRET))
        return bytes(row[0]) if row else b""

    def _is_begun(self, tx: Transaction, secret: bytes) -> bool:
        begun = tx.one(BEGUN)
        if begun is not None and bytes(begun[0]) == secret:
            return True
        if begun is not None or any(_count(tx, table) for table in self._tables):
            raise Conflict("the target is in use; name one that is empty")
        return False

    async def until_whole(self, between: Callable[[], Awaitable[T]], tell: Tell) -> tuple[int, T]:
        """Copy until both sides are the same; return the number of rows, and what came between.

        *between* copies what rows need: what came in meanwhile makes another round.

        Raises:
            Conflict: they never are.
        """
        for _ in range(_ROUNDS):
            rows, result = await self.copy(tell), await between()
            if await self.is_whole():
                return rows, result
        names = ", ".join(table.name for table in self._wrong or ())
        raise Conflict(
            f"somebody writes to the source ({names} still differ); stop its servers and run this "
            "again. If nobody does, the target was written to: begin again with an empty one"
        )

    async def copy(self, tell: Tell) -> int:
        """Copy what the target lacks, and return how many rows it has then.

        The second time, tables that differ are copied anew; a log that only grows is copied on.
        """
        source, target = self._source, self._target
        for table in self._wrong or ():
            if table.name not in _APPENDED:
                await target.write(partial(_clear, table=table))
        total = sum([await source.read(partial(_count, table=table)) for table in self._tables])
        done = 0
        for table in self._tables:
            done += await _copy(
                source, target, table, lambda count: tell(count, count / max(total, count)), done
            )
        return done

    async def is_whole(self) -> bool:
        """Whether each table is the same on both sides."""
        self._wrong = [
            table
            for table in self._tables
            if await _digest(self._source, table) != await _digest(self._target, table)
        ]
        return not self._wrong

    async def finish(self) -> None:
        """Let numbers go on where they were, and take over the facts; then the target is whole."""
        counted = [table.name for table in self._tables if table.key == ("number",)]

        def last_numbers(tx: Transaction) -> dict[str, int]:
            highest = {name: tx.one(f"SELECT max(number) FROM {name}") for name in counted}
            present = {name: int(row[0]) for name, row in highest.items() if row and row[0]}
            return present | self._source.counters(tx, counted)

        counters = await self._source.read(last_numbers)
        facts = await self._source.read(lambda tx: tx.all(FACTS))

        def finish(tx: Transaction) -> None:
            self._target.set_counters(tx, counters)
            tx.run("DELETE FROM facts")
            tx.many(PUT_FACT, [{"name": name, "value": value} for name, value in facts])

        await self._target.write(finish)


async def _copy(
    source: ClosableEngine,
    target: ClosableEngine,
    table: Table,
    tell: Callable[[int], None],
    before: int,
) -> int:
    """Copy what the target does not have yet, and return how many rows it has then."""
    last = await target.read(partial(_last, table=table))
    count = await target.read(partial(_count, table=table))
    while rows := await source.read(partial(_page, table=table, after=last)):
        await target.write(partial(_put, table=table, rows=rows))
        last = _key(table, rows[-1])
        count += len(rows)
        tell(before + count)
    return count


async def _digest(engine: ClosableEngine, table: Table) -> tuple[int, bytes]:
    """The number of rows, and a hash of all of them in their order."""
    digest, count, last = hashlib.sha256(), 0, None
    while rows := await engine.read(partial(_page, table=table, after=last)):
        for row in rows:
            digest.update(msgspec.msgpack.encode(row))
        count, last = count + len(rows), _key(table, rows[-1])
    return count, digest.digest()


def _count(tx: Transaction, table: Table) -> int:
    row = tx.one(f"SELECT count(*) FROM {table.name}")
    return int(row[0]) if row else 0


def _clear(tx: Transaction, table: Table) -> None:
    tx.run(f"DELETE FROM {table.name}")


def _last(tx: Transaction, table: Table) -> Row | None:
    order = ", ".join(f"{column} DESC" for column in table.key)
    return tx.one(f"SELECT {', '.join(table.key)} FROM {table.name} ORDER BY {order} LIMIT 1")


def _page(tx: Transaction, table: Table, after: Row | None) -> list[Row]:
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


def _put(tx: Transaction, table: Table, rows: list[Row]) -> None:
    values = ", ".join(f":{column}" for column in table.columns)
    tx.many(
        f"""INSERT INTO {table.name} ({", ".join(table.columns)}) VALUES ({values})
            ON CONFLICT DO NOTHING""",
        [dict(zip(table.columns, row, strict=True)) for row in rows],
    )


def _key(table: Table, row: Row) -> Row:
    return tuple(row[table.columns.index(column)] for column in table.key)
