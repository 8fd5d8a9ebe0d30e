"""Databases of earlier versions, as created by their own programs.

`dumps` has, for schema 33, the data that the command line and the server of that version wrote, and
for later ones the same data upgraded by that version: the SQL of the schema, `-- rows`, and the SQL
of the rows. The PostgreSQL databases have three partitions.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg

from postroom.store.open import KEY_FILE
from postroom.store.postgres import connection as connections
from postroom.store.postgres.connection import PostgresTransaction
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.sqlite.connection import SqliteTransaction
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.transaction import Row, Transaction

OLDEST = 33
VERSIONS = (OLDEST, 40, 41, 42)
PARTITIONS = 3
Engine = SqliteEngine | PostgresEngine
DUMPS = Path(__file__).parent / "dumps"
SECRET = "INSERT INTO facts (name, value) VALUES ('secret', {})"


class OldStore:
    """A database of an earlier version: rows are written to it before it is upgraded.

    Without *rows* it is as it was just after its creation.
    """

    def __init__(self, version: int, folder: Path, url: str = "", *, rows: bool = True) -> None:
        self.path, self.url = folder / "postroom.db", url
        kind = "postgres" if url else "sqlite"
        dump = lzma.decompress((DUMPS / f"{version}.{kind}.sql.xz").read_bytes()).decode()
        first, _, sql = dump.partition("\n")
        schema, _, inserts = sql.partition("\n-- rows\n")
        if rows:
            (folder / KEY_FILE).write_bytes(bytes.fromhex(first.removeprefix("-- audit.key ")))
        elif url:
            inserts = f"INSERT INTO schema_version VALUES ({version}); " + SECRET.format("'0123'")
        else:
            inserts = SECRET.format("x'30313233'")
        if url:
            reset(url)
        self.run(schema)
        self.run(inserts)

    def run(self, sql: str) -> None:
        """Run statements as the version that created the database."""
        if self.url:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(sql.encode())
            return
        connection = apsw.Connection(str(self.path))
        connection.execute(sql)
        connection.close()

    def write(self, work: Callable[[Transaction], object]) -> None:
        """Write rows as a program of that version does."""
        if self.url:
            with connections.connect(self.url) as server, server.transaction():
                work(PostgresTransaction(server))
            return
        connection = apsw.Connection(str(self.path))
        with connection:
            work(SqliteTransaction(connection))
        connection.close()

    def all(self, sql: str) -> list[Row]:
        """The rows of a query."""
        if self.url:
            with psycopg.connect(self.url, autocommit=True) as server:
                return server.execute(sql.encode()).fetchall()
        connection = apsw.Connection(str(self.path))
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def open(self) -> Engine:
        """Upgrade and open the database."""
        return PostgresEngine.open(self.url) if self.url else SqliteEngine.open(self.path)


def reset(url: str) -> None:
    """Delete everything in a PostgreSQL database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
