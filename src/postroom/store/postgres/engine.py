"""The PostgreSQL engine: one writer, a pool of readers, retries, and the notifier.

As on SQLite, no other writer of the installation runs during a transaction, and numbers follow the
order of commits; events, cursors and the search index rely on both. An advisory lock ensures this.
All writes that wait in a process share one transaction, so the lock costs one sync per batch.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar, get_args

import psycopg
from psycopg.errors import LockNotAvailable

from postroom.errors import Conflict, MailError, Unavailable
from postroom.store.maintenance.lifecycle import MIGRATED, refuse_migrated
from postroom.store.postgres.connection import (
    PAUSE_S,
    RETRY_S,
    PostgresReadTransaction,
    PostgresTransaction,
    connect,
    is_transient,
    is_unreachable,
    translated,
)
from postroom.store.postgres.liveness import Hosts, Liveness, StuckWriter
from postroom.store.postgres.migrations import PARTITIONS, WRITING, migrate
from postroom.store.sql.statements import scalar
from postroom.store.thread_pool import Job, ThreadPool, WriteQueue, start_thread, wait_for_thread
from postroom.store.transaction import ReadCache, Subscriptions, Topic, Transaction

log = logging.getLogger(__name__)

LOCK = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    f"SELECT pg_advisory_xact_lock({WRITING[0]}, {WRITING[1]})"
)
"""READ COMMITTED, whatever the default of the database: after waiting, a writer must see the
commits of others.
"""

BEGIN = f"{LOCK}; {MIGRATED}"
MARKER_EXISTS = "SELECT 1 FROM write_marks WHERE writer = :writer AND mark = :mark"
SET_MARKER = """
    INSERT INTO write_marks (writer, mark) VALUES (:writer, :mark)
    ON CONFLICT (writer) DO UPDATE SET mark = excluded.mark, at = now()
"""
DELETE_OLD_MARKERS = "DELETE FROM write_marks WHERE at < now() - interval '1 day'"
"""Each process stores one marker, and reads it right after a failed commit."""


class Writer:
    """The connection that writes.

    When it breaks during a commit, the outcome is unknown. Each batch therefore stores a marker,
    and a second attempt looks for it first; holding the lock means that the first attempt is over.
    """

    def __init__(self, hosts: Hosts, patience_s: float = RETRY_S) -> None:
        self._hosts, self.patience_s = hosts, patience_s
        self._name = secrets.token_hex(8)
        self._mark = 0
        self._connection: psycopg.Connection | None = None
        self._stuck_writer = StuckWriter()
        self._has_failed = False
        self.is_stopping = self.is_guarded = False

    def commit(self, batch: list[Job]) -> None:
        """Run all jobs in one transaction; a job that fails does not affect the others."""
        self._mark += 1
        try:
            self._commit(batch)
            self._has_failed = False
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            self._has_failed = True
            self.close()
            log.warning("write.failed", extra={"error": str(error)})
            for job in batch:
                job.error = job.error or translated(error)

    def close(self) -> None:
        """Close the connection; the next batch opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _commit(self, batch: list[Job]) -> None:
        # Who waited for a batch that failed has waited for the server already.
        began = min(job.queued_at for job in batch) if self._has_failed else time.monotonic()
        deadline, is_retry = began + self.patience_s, False
        while True:
            try:
                self._attempt(batch, is_retry=is_retry)
            except psycopg.Error as error:
                # A process that was suspended gets a second attempt even after the deadline.
                is_late = is_retry and (self.is_stopping or time.monotonic() > deadline)
                if not self._should_retry(error, is_late=is_late):
                    raise
                self.close()
                is_retry = True
                time.sleep(PAUSE_S)
            else:
                return

    def _should_retry(self, error: psycopg.Error, *, is_late: bool) -> bool:
        """Whether another attempt may succeed."""
        if isinstance(error, LockNotAvailable) and self._connection is not None:
            self._connection.execute("ROLLBACK")
            return self._stuck_writer.end(self._connection)
        return is_transient(error) and not is_late

    def _attempt(self, batch: list[Job], *, is_retry: bool) -> None:
        if self._connection is None:
            self._connection = self._hosts.connect()
        connection = self._connection
        migrated = _begin(connection)
        tx, announced = PostgresTransaction(connection), set[Topic]()
        if is_retry and tx.one(MARKER_EXISTS, writer=self._name, mark=self._mark):
            connection.execute("ROLLBACK")
            return
        try:
            if migrated and self.is_guarded:
                refuse_migrated(migrated)
        except Conflict as error:
            connection.execute("ROLLBACK")
            for job in batch:
                job.error = error
            return
        for job in batch:
            announced |= _run(connection, job)
        tx.run(SET_MARKER, writer=self._name, mark=self._mark)
        if self._mark == 1:
            tx.run(DELETE_OLD_MARKERS)
        if announced:
            tx.one(PUBLISH, topics=",".join(sorted(announced)))
        connection.execute("COMMIT")


def _begin(connection: psycopg.Connection) -> dict[str, bytes]:
    """Begin a transaction, wait for the lock, and return the migration state."""
    cursor = connection.execute(BEGIN)
    while cursor.nextset():
        pass
    return dict(cursor.fetchall())


def _run(connection: psycopg.Connection, job: Job) -> set[Topic]:
    """Run one job in a savepoint and return the topics that it announced."""
    job.result = job.error = None
    try:
        with connection.pipeline() as pipeline:
            connection.execute("SAVEPOINT job")
            transaction = PostgresTransaction(connection, pipeline)
            job.result = job.work(transaction)
            connection.execute("RELEASE job")
    except Exception as error:
        if is_transient(error):
            raise
        job.result, job.error = None, translated(error)
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
        return set()
    return transaction.announced


T = TypeVar("T")
_PATIENCE_USED = 0.9
"""The share of the patience that is waited; the rest is for the last attempt and the response."""

_READERS = 6
_MAX_WAITING = 1_000


class PostgresEngine:
    """Runs functions inside transactions on a PostgreSQL server.

    Work that is interrupted by an unavailable server is retried on a new connection.
    """

    def __init__(self, url: str, patience_s: float = RETRY_S) -> None:
        patience_s *= _PATIENCE_USED
        self._hosts, self._patience_s = (hosts := Hosts(url)), patience_s
        self.notifier = PostgresNotifier(hosts)
        self._local = threading.local()
        self._connections: list[psycopg.Connection] = []
        self._waiting = 0
        self._liveness = Liveness(hosts, patience_s)
        self._is_stopping = False
        self._read_cache = ReadCache()
        self._readers = ThreadPool(_READERS, "postroom-read")
        self._writer = Writer(hosts, patience_s)
        self._writing = WriteQueue(self._writer.commit)

    @classmethod
    def open(
        cls, url: str, partitions: int = PARTITIONS, *, patience_s: float = RETRY_S
    ) -> PostgresEngine:
        """Connect and upgrade the schema; *patience_s* is for work later on. Raises MailError."""
        deadline, is_reachable = time.monotonic() + RETRY_S, False
        while True:
            try:
                with connect(url) as connection:
                    migrate(connection, partitions)
                return cls(url, patience_s)
            except psycopg.Error as error:
                if is_reachable or not is_transient(error) or time.monotonic() > deadline:
                    raise _unusable(error) from error
                # It may have started meanwhile: one more attempt.
                is_reachable = not is_unreachable(url)
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
        return await asyncio.wrap_future(self._readers.submit(work))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await self._liveness.wait(self._writing.write(work))

    def check(self, tx: Transaction) -> tuple[str, ...]:
        """Do nothing: PostgreSQL checks its own files (checksums, `pg_amcheck`)."""
        return ()

    def size(self, tx: Transaction) -> tuple[str, int]:
        version = str(scalar(tx, "SHOW server_version")).partition(" ")[0]
        size = scalar(tx, "SELECT pg_database_size(current_database())")
        return f"PostgreSQL {version}", int(size)

    def counters(self, tx: Transaction, tables: Sequence[str]) -> dict[str, int]:
        found = {}
        for name in tables:
            row = tx.one(f"SELECT last_value FROM {name}_number_seq WHERE is_called")
            if row is not None:
                found[name] = int(row[0])
        return found

    def set_counters(self, tx: Transaction, counters: Mapping[str, int]) -> None:
        given = {name: number for name, number in counters.items() if number > 0}
        for name, number in given.items():
            tx.one(f"SELECT setval('{name}_number_seq', :number)", number=number)

    def clear_unused(self, tx: Transaction, table: str) -> None:
        """Do nothing: the server vacuums old rows."""

    def guard(self) -> None:
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
            log.warning("database.close_timed_out", extra={"error": "it does not answer"})
        finally:
            self._liveness.close()

    async def _close_all(self) -> None:
        await asyncio.gather(self._writing.close(), self._readers.close(), self.notifier.close())
        self._writer.close()
        for connection in self._connections:
            connection.close()

    def _read(self, work: Callable[[Transaction], T], queued_at: float) -> T:
        while True:
            try:
                return self._read_once(work)
            except psycopg.Error as error:
                is_late = self._is_stopping or time.monotonic() > queued_at + self._patience_s
                if is_late or not is_transient(error):
                    raise translated(error) from error
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
    fix = "check POSTROOM_DATABASE_URL, and that its server runs and has this database and user"
    return Unavailable(f"the database cannot be used: {reason}; {fix}", retry_after=2)


CHANNEL = "postroom"
TOPICS: frozenset[Topic] = frozenset(get_args(Topic))
PUBLISH = f"SELECT pg_notify('{CHANNEL}', :topics)"
_LOOK_S = 0.5
_RETRY_S = 0.25


class PostgresNotifier:
    """Wakes waiting tasks of this process.

    Every topic is published when listening begins and after a reconnection, because notifications
    may have been missed.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._subscriptions = Subscriptions()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = threading.Event()
        self._thread: Future[None] | None = None

    def position(self, topic: Topic) -> int:
        if self._loop is None and not self._closing.is_set():
            self._loop = asyncio.get_running_loop()
            self._thread = start_thread(self._listen, "postroom-notifier")
        return self._subscriptions.count(topic)

    async def wait(self, topic: Topic, seen: int) -> int:
        self.position(topic)
        return await self._subscriptions.wait(topic, seen)

    async def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._subscriptions.close()
        if self._thread is not None:
            await wait_for_thread(self._thread)

    def _listen(self) -> None:
        while not self._closing.is_set():
            with suppress(psycopg.Error, MailError), self._hosts.connect() as connection:
                connection.execute(f"LISTEN {CHANNEL}")
                self._publish(TOPICS)
                self._receive(connection)
            self._closing.wait(_RETRY_S)

    def _receive(self, connection: psycopg.Connection) -> None:
        while not self._closing.is_set():
            for notice in connection.notifies(timeout=_LOOK_S, stop_after=1):
                self._publish(TOPICS.intersection(notice.payload.split(",")))

    def _publish(self, topics: Iterable[Topic]) -> None:
        # The loop may be closed already; then no task waits.
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._subscriptions.announced, topics)
