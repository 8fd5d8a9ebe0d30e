"""Functions of the store on a PostgreSQL server: one writer, a pool of readers, and patience."""

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
from postroom.store.postgres.bell import NotifyBell
from postroom.store.postgres.connection import (
    PATIENCE_S,
    PAUSE_S,
    PostgresReading,
    connect,
    explained,
    is_away,
    is_passing,
    postgres_errors,
)
from postroom.store.postgres.hosts import Hosts
from postroom.store.postgres.migrations import migrate
from postroom.store.postgres.pulse import Pulse
from postroom.store.postgres.schema import PARTITIONS
from postroom.store.postgres.writer import Writer
from postroom.store.remembering import Remembering
from postroom.store.threads import Threads
from postroom.store.transaction import Transaction
from postroom.store.writing import WriteQueue

log = logging.getLogger(__name__)

T = TypeVar("T")
_READERS = 6
_MOST_WAITING = 1_000


class PostgresEngine:
    """Runs functions inside transactions on a PostgreSQL server.

    A server that is gone for a while costs time only: work is begun again on a new connection.
    """

    def __init__(self, url: str) -> None:
        self._hosts = hosts = Hosts(url)
        self.bell = NotifyBell(hosts)
        self._local = threading.local()
        self._connections: list[psycopg.Connection] = []
        self._waiting = 0
        self._pulse = Pulse(hosts)
        self._is_hurried = False
        self._remembering = Remembering()
        self._readers = Threads(_READERS, "postroom-read")
        self._writer = Writer(hosts)
        self._writing = WriteQueue(self._writer.commit)

    @classmethod
    def open(cls, url: str, partitions: int = PARTITIONS) -> PostgresEngine:
        """Connect and bring the schema up to date. Raises MailError, which says what is wrong."""
        deadline, is_there = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                with connect(url) as connection:
                    migrate(connection, partitions)
                return cls(url)
            except psycopg.Error as error:
                if is_there or not is_passing(error) or time.monotonic() > deadline:
                    raise _unusable(error) from error
                is_there = not is_away(url)  # it may be there by now: then once more
                time.sleep(PAUSE_S)

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* on one consistent snapshot. Raises Unavailable when too many wait."""
        if self._waiting >= _MOST_WAITING:
            raise Unavailable("there is too much to do; try again", retry_after=1)
        self._waiting += 1
        try:
            reading = self._readers.submit(partial(self._read, work, time.monotonic()))
            return await self._pulse.wait(asyncio.wrap_future(reading))
        finally:
            self._waiting -= 1

    async def scan(self, work: Callable[[Transaction], T]) -> T:
        """Run *work*, which reads much and reads it once; the server has memory of its own."""
        return await self.read(work)

    async def compute(self, work: Callable[[], T]) -> T:
        """Run *work*, which asks the database nothing, once, beside those who read."""
        return await asyncio.wrap_future(self._readers.submit(work))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* atomically; when this returns, what it wrote is on disk."""
        return await self._pulse.wait(self._writing.write(work))

    def check(self, tx: Transaction) -> tuple[str, ...]:
        """Nothing: PostgreSQL looks after its files itself (checksums, `pg_amcheck`)."""
        return ()

    def counters(self, tx: Transaction, tables: Sequence[str]) -> dict[str, int]:
        """The last number that each table has given."""
        found = {}
        for name in tables:
            row = tx.one(f"SELECT last_value FROM {name}_number_seq WHERE is_called")
            if row is not None:
                found[name] = int(row[0])
        return found

    def set_counters(self, tx: Transaction, counters: Mapping[str, int]) -> None:
        """Let each table go on after a number."""
        given = {name: number for name, number in counters.items() if number > 0}
        for name, number in given.items():
            tx.one(f"SELECT setval('{name}_number_seq', :number)", number=number)

    def guard(self) -> None:
        """Write nothing more once the house has moved away."""
        self._writer.is_guarded = True

    def hurry(self) -> None:
        """Try nothing again from now on, and wait for no server that is silent: we are to stop.

        One that is slow is waited for. What is given up was acknowledged to nobody.
        """
        self._is_hurried = self._writer.is_hurried = True
        self._pulse.hurry()

    async def close(self) -> None:
        """Finish what is queued and close every connection, unless the server is silent."""
        self.hurry()
        try:
            await self._pulse.wait(self._end())
        except Unavailable:
            log.warning("database.left", extra={"error": "it does not answer"})
        finally:
            self._pulse.close()

    async def _end(self) -> None:
        await asyncio.gather(self._writing.close(), self._readers.close(), self.bell.close())
        self._writer.close()
        for connection in self._connections:
            connection.close()

    def _read(self, work: Callable[[Transaction], T], asked_at: float) -> T:
        with postgres_errors():
            while True:
                try:
                    return self._read_once(work)
                except psycopg.Error as error:
                    is_late = self._is_hurried or time.monotonic() > asked_at + PATIENCE_S
                    if is_late or not is_passing(error):
                        raise
                    time.sleep(PAUSE_S)

    def _read_once(self, work: Callable[[Transaction], T]) -> T:
        connection = self._connected()
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            return work(PostgresReading(connection, self._remembering))
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
        return explained(error)
    reason = str(error).splitlines()[0]
    return Unavailable(f"the database cannot be used: {reason}", retry_after=2)
