"""Reads and writes the rows of any table, page by page in the order of its key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial

import apsw
import msgspec

from postroom.store.sqlite.migrations import migrate
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
        """The key of a row."""
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
    """The number of rows."""
    row = tx.one(f"SELECT count(*) FROM {table.name}")
    return int(row[0]) if row else 0


def last_key(tx: Transaction, table: Table) -> Row | None:
    """The key of the last row."""
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
