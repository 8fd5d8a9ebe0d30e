"""The SQLite engine: the schema, one writer thread with group commit, and a pool of readers."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from postroom.store.maintenance.lifecycle import MIGRATED, refuse_migrated
from postroom.store.sql.statements import insert, scalar
from postroom.store.sqlite.connection import (
    PipeNotifier,
    Reader,
    Role,
    SqliteTransaction,
    StorageFailed,
    check_sqlite,
    connect,
    sqlite_errors,
    wait_for_locks,
)
from postroom.store.thread_pool import Job, ThreadPool, WriteQueue
from postroom.store.transaction import Topic, Transaction
from postroom.store.upgrade import (
    RENAMED,
    VERSION,
    Schema,
    check_version,
    data_statements,
    renames,
)

SCHEMA = Schema(Path(__file__).with_name("schema.sql"))
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_DEPENDENTS = """
    SELECT type, name FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL
"""


def migrate(connection: apsw.Connection) -> None:
    """Upgrade the schema in one transaction, so that a kill leaves the old or the new one.

    Raises:
        TooNew: the database was made by a newer Postroom.
        TooOld: it was made by a version that this one cannot upgrade.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = int(connection.pragma("user_version") or 0)
        if version == VERSION:
            return
        if version == 0:
            _create(connection)
        else:
            check_version(version)
            _upgrade(connection, version)
        connection.pragma("user_version", VERSION)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _create(connection: apsw.Connection) -> None:
    connection.execute(SCHEMA.text)
    connection.execute(
        "INSERT INTO metadata (name, value) VALUES ('secret', :value)",
        {"value": secrets.token_bytes(32)},
    )


def _upgrade(connection: apsw.Connection, version: int) -> None:
    if version < RENAMED:
        _rename(connection)
    for statement in (*SCHEMA.additions(_columns(connection)), *data_statements(version)):
        connection.execute(statement)


def _columns(connection: apsw.Connection) -> dict[str, set[str]]:
    names = [str(row[0]) for row in connection.execute(_TABLES)]
    return {
        name: {str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})")}
        for name in names
    }


def _rename(connection: apsw.Connection) -> None:
    """Rename tables and columns; drop the indexes and triggers that the schema does not name."""
    for kind, name in connection.execute(_DEPENDENTS).fetchall():
        if str(name) not in SCHEMA:
            connection.execute(f"DROP {kind} {name}")
    for statement in renames(_columns(connection)):
        connection.execute(statement)
    _drop_defaults(connection)


def _drop_defaults(connection: apsw.Connection) -> None:
    """Drop the default of `inbox` in tables that are too large to be copied.

    The method is described at https://www.sqlite.org/lang_altertable.html#otheralter for changes
    that do not affect stored data.
    """
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        """UPDATE sqlite_schema SET sql = replace(sql, 'inbox INTEGER NOT NULL DEFAULT 0',
                                                  'inbox INTEGER NOT NULL')
            WHERE type = 'table'"""
    )
    connection.execute("PRAGMA writable_schema = RESET")


T = TypeVar("T")
READERS = 4
IS_COUNTED = "SELECT 1 FROM sqlite_schema WHERE name = :name AND instr(sql, 'AUTOINCREMENT') > 0"


class SqliteEngine:
    """Runs functions inside transactions on one SQLite file.

    Writers queue; all that wait during a commit share the next one, so that many small writes cost
    one sync. After a failed write or sync no write is accepted until a restart, because pages that
    the operating system dropped cannot be written again.
    """

    def __init__(self, path: Path, writer: apsw.Connection) -> None:
        self._path = path
        self.notifier = PipeNotifier(path.parent / "notifier")
        self._writer = writer
        self.commits = 0
        self._broken: StorageFailed | None = None
        self._is_guarded = False
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._readers = ThreadPool(READERS, "postroom-read")
        self._scanner = ThreadPool(1, "postroom-scan")
        self._writing = WriteQueue(self._commit)

    @classmethod
    def open(cls, path: Path) -> SqliteEngine:
        """Open the file and upgrade its schema. Raises MailError."""
        check_sqlite()
        with sqlite_errors():
            writer = connect(path, Role.WRITER)
            migrate(writer)
            wait_for_locks(writer)
        return cls(path, writer)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await asyncio.wrap_future(
            self._readers.submit(partial(self._read, Role.READER, work))
        )

    async def scan(self, work: Callable[[Transaction], T]) -> T:
        return await asyncio.wrap_future(
            self._scanner.submit(partial(self._read, Role.SCANNER, work))
        )

    async def compute(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._scanner.submit(work))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await self._writing.write(work)

    def check(self, tx: Transaction) -> tuple[str, ...]:
        """Run the integrity check of SQLite."""
        rows = tx.all("PRAGMA integrity_check(100)")
        return tuple(f"database: {row[0]}" for row in rows if row[0] != "ok")

    def size(self, tx: Transaction) -> tuple[str, int]:
        pages, page_bytes = scalar(tx, "PRAGMA page_count"), scalar(tx, "PRAGMA page_size")
        return f"SQLite {apsw.sqlite_lib_version()}", int(pages) * int(page_bytes)

    def counters(self, tx: Transaction, tables: Sequence[str]) -> dict[str, int]:
        rows = tx.all("SELECT name, seq FROM sqlite_sequence")
        return {name: number for name, number in rows if name in tables}

    def set_counters(self, tx: Transaction, counters: Mapping[str, int]) -> None:
        for name, number in counters.items():
            if tx.one(IS_COUNTED, name=name) is None:
                continue
            tx.run("DELETE FROM sqlite_sequence WHERE name = :name", name=name)
            insert(tx, "sqlite_sequence", name=name, seq=number)

    def clear_unused(self, tx: Transaction, table: str) -> None:
        """Rewrite the rows of a small table on pages that were overwritten with zeros.

        Rows that grew or moved, and pages that were split, leave old bytes behind.
        """
        tx.all("PRAGMA secure_delete = ON")
        try:
            tx.run(f"CREATE TEMP TABLE moved AS SELECT * FROM {table}")
            tx.run(f"DELETE FROM {table}")
            tx.run(f"INSERT INTO {table} SELECT * FROM temp.moved")
            tx.run("DROP TABLE temp.moved")
        finally:
            tx.all("PRAGMA secure_delete = OFF")

    def guard(self) -> None:
        self._is_guarded = True

    def begin_shutdown(self) -> None:
        """Do nothing: a file is always available."""

    async def close(self) -> None:
        """Finish queued writes and close every connection."""
        await self._writing.close()
        for pool in (self._readers, self._scanner):
            await pool.close()
        self.notifier.close()
        for connection in (*self._connections, self._writer):
            connection.close()

    def _read(self, role: Role, work: Callable[[Transaction], T]) -> T:
        with sqlite_errors(), self._reader(role).transaction() as transaction:
            return work(transaction)

    def _reader(self, role: Role) -> Reader:
        """The connection of this thread."""
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            connection = connect(self._path, role)
            self._connections.append(connection)
            reader = self._local.reader = Reader(connection)
        return reader

    def _commit(self, batch: list[Job]) -> None:
        try:
            if self._broken is not None:
                raise self._broken
            with sqlite_errors():
                self._run_batch(batch)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            self._fail(batch, error)

    def _run_batch(self, batch: list[Job]) -> None:
        """Run all jobs in one transaction; a job that fails does not affect the others."""
        self._writer.execute("BEGIN IMMEDIATE")
        if self._is_guarded and (migrated := dict(self._writer.execute(MIGRATED))):
            refuse_migrated(migrated)
        if len(batch) == 1:
            announced = self._run_single(batch[0])
        else:
            announced = set[Topic]().union(*map(self._run_in_savepoint, batch))
        self._writer.execute("COMMIT")
        self.commits += 1
        if announced:
            self.notifier.publish(announced)

    def _run_single(self, job: Job) -> set[Topic]:
        """Run a job that is the whole transaction, without a savepoint.

        A savepoint keeps every changed page, and with many of them each statement with a trigger is
        slow.
        """
        transaction = SqliteTransaction(self._writer)
        job.result = job.work(transaction)
        return transaction.announced

    def _run_in_savepoint(self, job: Job) -> set[Topic]:
        """Run one of several jobs in a savepoint, which is rolled back if it fails."""
        transaction = SqliteTransaction(self._writer)
        self._writer.execute("SAVEPOINT job")
        try:
            with sqlite_errors():
                job.result = job.work(transaction)
        except Exception as error:
            job.error = error
            if isinstance(error, StorageFailed) or not self._writer.in_transaction:
                raise
            self._writer.execute("ROLLBACK TO job")
            transaction.announced.clear()
        self._writer.execute("RELEASE job")
        return transaction.announced

    def _fail(self, batch: list[Job], error: Exception) -> None:
        if isinstance(error, StorageFailed):
            self._broken = error
        if self._writer.in_transaction:
            try:
                self._writer.execute("ROLLBACK")
            except apsw.Error:
                self._broken = StorageFailed("the disk failed; repair it, then restart")
        for job in batch:
            job.error = job.error or error
