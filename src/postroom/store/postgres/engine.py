"""The PostgreSQL engine: one writer, a pool of readers, and retries."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import psycopg

from postroom.errors import Unavailable
from postroom.store.postgres.connection import (
    PATIENCE_S,
    PAUSE_S,
    PostgresReadTransaction,
    connect,
    is_transient,
    is_unreachable,
    postgres_errors,
    translated,
)
from postroom.store.postgres.health import Hosts, Liveness
from postroom.store.postgres.migrations import PARTITIONS, migrate
from postroom.store.postgres.notifier import PostgresNotifier
from postroom.store.postgres.writer import Writer
from postroom.store.thread_pool import ThreadPool
from postroom.store.transaction import ReadCache, Transaction
from postroom.store.write_queue import WriteQueue

log = logging.getLogger(__name__)

T = TypeVar("T")
_READERS = 6
_MAX_WAITING = 1_000


class PostgresEngine:
    """Runs functions inside transactions on a PostgreSQL server.

    Work that is interrupted by an unavailable server is retried on a new connection.
    """

    def __init__(self, url: str) -> None:
        self._hosts = hosts = Hosts(url)
        self.notifier = PostgresNotifier(hosts)
        self._local = threading.local()
        self._connections: list[psycopg.Connection] = []
        self._waiting = 0
        self._liveness = Liveness(hosts)
        self._is_stopping = False
        self._read_cache = ReadCache()
        self._readers = ThreadPool(_READERS, "postroom-read")
        self._writer = Writer(hosts)
        self._writing = WriteQueue(self._writer.commit)

    @classmethod
    def open(cls, url: str, partitions: int = PARTITIONS) -> PostgresEngine:
        """Connect and upgrade the schema. Raises MailError."""
        deadline, is_reachable = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                with connect(url) as connection:
                    migrate(connection, partitions)
                return cls(url)
            except psycopg.Error as error:
                if is_reachable or not is_transient(error) or time.monotonic() > deadline:
                    raise _unusable(error) from error
                is_reachable = not is_unreachable(
                    url
                )  # it may have started meanwhile: one more attempt
                time.sleep(PAUSE_S)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* on one consistent snapshot. Raises Unavailable when too many requests wait."""
        if self._waiting >= _MAX_WAITING:
            raise Unavailable("too many requests are waiting; try again", retry_after=1)
        self._waiting += 1
        try:
            reading = self._readers.submit(partial(self._read, work, time.monotonic()))
            return await self._liveness.wait(asyncio.wrap_future(reading))
        finally:
            self._waiting -= 1

    async def scan(self, work: Callable[[Transaction], T]) -> T:
        """Run *work*, which reads many rows once; the server manages its own cache."""
        return await self.read(work)

    async def compute(self, work: Callable[[], T]) -> T:
        """Run *work*, which does not use the database, in a reader thread."""
        return await asyncio.wrap_future(self._readers.submit(work))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* atomically; its writes are on disk when this returns."""
        return await self._liveness.wait(self._writing.write(work))

    def check(self, tx: Transaction) -> tuple[str, ...]:
        """Do nothing: PostgreSQL checks its own files (checksums, `pg_amcheck`)."""
        return ()

    def counters(self, tx: Transaction, tables: Sequence[str]) -> dict[str, int]:
        """The last number assigned in each table."""
        found = {}
        for name in tables:
            row = tx.one(f"SELECT last_value FROM {name}_number_seq WHERE is_called")
            if row is not None:
                found[name] = int(row[0])
        return found

    def set_counters(self, tx: Transaction, counters: Mapping[str, int]) -> None:
        """Set the last assigned number of each table."""
        given = {name: number for name, number in counters.items() if number > 0}
        for name, number in given.items():
            tx.one(f"SELECT setval('{name}_number_seq', :number)", number=number)

    def clear_unused(self, tx: Transaction, table: str) -> None:
        """Do nothing: the server vacuums old rows."""

    def guard(self) -> None:
        """Refuse writes after the installation was migrated away."""
        self._writer.is_guarded = True

    def begin_shutdown(self) -> None:
        """Stop retrying, and stop waiting for a server that does not answer.

        A slow server is still waited for. Abandoned work was not acknowledged.
        """
        self._is_stopping = self._writer.is_stopping = True
        self._liveness.begin_shutdown()

    async def close(self) -> None:
        """Finish queued writes and close every connection, unless the server does not answer."""
        self.begin_shutdown()
        try:
            await self._liveness.wait(self._close_all())
        except Unavailable:
            log.warning("database.abandoned", extra={"error": "it does not answer"})
        finally:
            self._liveness.close()

    async def _close_all(self) -> None:
        await asyncio.gather(self._writing.close(), self._readers.close(), self.notifier.close())
        self._writer.close()
        for connection in self._connections:
            connection.close()

    def _read(self, work: Callable[[Transaction], T], asked_at: float) -> T:
        with postgres_errors():
            while True:
                try:
                    return self._read_once(work)
                except psycopg.Error as error:
                    is_late = self._is_stopping or time.monotonic() > asked_at + PATIENCE_S
                    if is_late or not is_transient(error):
                        raise
                    time.sleep(PAUSE_S)

    def _read_once(self, work: Callable[[Transaction], T]) -> T:
        connection = self._connected()
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            return work(PostgresReadTransaction(connection, self._read_cache))
        finally:
            if not connection.closed:
                connection.execute("ROLLBACK")

    def _connected(self) -> psycopg.Connection:
        """The connection of this thread."""
        connection: psycopg.Connection | None = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            connection = self._local.connection = self._hosts.connect()
            self._connections = [c for c in self._connections if not c.closed] + [connection]
        return connection


def _unusable(error: psycopg.Error) -> Exception:
    if not isinstance(error, psycopg.OperationalError):
        return translated(error)
    reason = str(error).splitlines()[0]
    return Unavailable(f"the database cannot be used: {reason}", retry_after=2)
