"""One writer thread that shares each sync among all who wait for it, and a pool of readers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from postroom.ports.bell import Topic
from postroom.store.sqlite.bell import PipeBell
from postroom.store.sqlite.connection import (
    Reader,
    Role,
    SqliteTransaction,
    StorageFailed,
    check_sqlite,
    connect,
    sqlite_errors,
)
from postroom.store.sqlite.migrations import migrate
from postroom.store.standing import MOVED, refuse_moved
from postroom.store.threads import Threads
from postroom.store.transaction import Transaction
from postroom.store.writing import Job, WriteQueue

T = TypeVar("T")
READERS = 4
IS_COUNTED = "SELECT 1 FROM sqlite_schema WHERE name = :name AND instr(sql, 'AUTOINCREMENT') > 0"


class SqliteEngine:
    """Runs functions inside transactions on one SQLite file.

    Writers queue up; whoever waits while a commit is under way shares the next one, so that many
    small writers pay for one sync. After a failed write or sync nothing more is written: what the
    operating system has dropped cannot be written again (restart to find out what is there).
    """

    def __init__(self, path: Path, writer: apsw.Connection) -> None:
        self._path = path
        self.bell = PipeBell(path.parent / "bells")
        self._writer = writer
        self.commits = 0
        self._broken: StorageFailed | None = None
        self._is_guarded = False
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._readers = Threads(READERS, "postroom-read")
        self._scanner = Threads(1, "postroom-scan")
        self._writing = WriteQueue(self._commit)

    @classmethod
    def open(cls, path: Path) -> SqliteEngine:
        """Open the file and bring its schema up to date. Raises MailError."""
        check_sqlite()
        with sqlite_errors():
            writer = connect(path, Role.WRITER)
            migrate(writer)
        return cls(path, writer)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* on one consistent snapshot."""
        return await asyncio.wrap_future(
            self._readers.submit(partial(self._read, Role.READER, work))
        )

    async def scan(self, work: Callable[[Transaction], T]) -> T:
        """Run *work*, which reads much and reads it once, so that it takes little memory."""
        return await asyncio.wrap_future(
            self._scanner.submit(partial(self._read, Role.SCANNER, work))
        )

    async def compute(self, work: Callable[[], T]) -> T:
        """Run *work*, which asks the database nothing, once, in the thread that scans."""
        return await asyncio.wrap_future(self._scanner.submit(work))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* atomically; when this returns, what it wrote is on disk."""
        return await self._writing.write(work)

    def check(self, tx: Transaction) -> tuple[str, ...]:
        """Let SQLite check its file."""
        rows = tx.all("PRAGMA integrity_check(100)")
        return tuple(f"database: {row[0]}" for row in rows if row[0] != "ok")

    def counters(self, tx: Transaction, tables: Sequence[str]) -> dict[str, int]:
        """The last number that each table has given."""
        rows = tx.all("SELECT name, seq FROM sqlite_sequence")
        return {name: number for name, number in rows if name in tables}

    def set_counters(self, tx: Transaction, counters: Mapping[str, int]) -> None:
        """Let each table go on after a number."""
        for name, number in counters.items():
            if tx.one(IS_COUNTED, name=name) is None:
                continue
            tx.run("DELETE FROM sqlite_sequence WHERE name = :name", name=name)
            tx.run(
                "INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)",
                name=name,
                number=number,
            )

    def guard(self) -> None:
        """Write nothing more once the house has moved away."""
        self._is_guarded = True

    def hurry(self) -> None:
        """Nothing: a file is always there."""

    async def close(self) -> None:
        """Finish what is queued and close every connection."""
        await self._writing.close()
        for pool in (self._readers, self._scanner):
            await pool.close()
        self.bell.close()
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
                self._run_together(batch)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            self._fail(batch, error)

    def _run_together(self, batch: list[Job]) -> None:
        """Run all jobs in one transaction; one that fails leaves the others alone."""
        self._writer.execute("BEGIN IMMEDIATE")
        if self._is_guarded:
            refuse_moved(dict(self._writer.execute(MOVED)))
        if len(batch) == 1:
            announced = self._run_alone(batch[0])
        else:
            announced = set[Topic]().union(*map(self._run_apart, batch))
        self._writer.execute("COMMIT")
        self.commits += 1
        if announced:
            self.bell.ring(announced)

    def _run_alone(self, job: Job) -> set[Topic]:
        """Run a job that is the whole transaction.

        It needs no savepoint, which would keep every page that it changes: with many of those,
        SQLite takes long over each statement that has a trigger.
        """
        transaction = SqliteTransaction(self._writer)
        job.result = job.work(transaction)
        return transaction.announced

    def _run_apart(self, job: Job) -> set[Topic]:
        """Run one of several jobs; what it did is taken back if it fails."""
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
                self._broken = StorageFailed("the disk failed; restart once it is well")
        for job in batch:
            job.error = job.error or error
