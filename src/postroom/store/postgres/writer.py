"""One writer at a time per installation, and a marker of the last committed batch.

As on SQLite, no other writer runs during a transaction, and numbers follow the order of commits;
events, cursors and the search index rely on both. An advisory lock ensures this. All writes that
wait in a process share one transaction, so the lock costs one sync per batch.
"""

from __future__ import annotations

import logging
import secrets
import time

import psycopg
from psycopg.errors import LockNotAvailable

from postroom.errors import Conflict
from postroom.ports.events import Topic
from postroom.store.maintenance.lifecycle import MOVED, refuse_migrated
from postroom.store.postgres.connection import (
    PATIENCE_S,
    PAUSE_S,
    PostgresTransaction,
    is_transient,
    translated,
)
from postroom.store.postgres.health import Hosts, StuckWriter
from postroom.store.postgres.migrations import WRITING
from postroom.store.postgres.notifier import PUBLISH
from postroom.store.write_queue import Job

log = logging.getLogger(__name__)

LOCK = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    f"SELECT pg_advisory_xact_lock({WRITING[0]}, {WRITING[1]})"
)
"""READ COMMITTED, whatever the default of the database: after waiting, a writer must see the
commits of others.
"""

BEGIN = f"{LOCK}; {MOVED}"
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

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._name = secrets.token_hex(8)
        self._mark = 0
        self._connection: psycopg.Connection | None = None
        self._stuck_writer = StuckWriter()
        self.is_stopping = self.is_guarded = False

    def commit(self, batch: list[Job]) -> None:
        """Run all jobs in one transaction; a job that fails does not affect the others."""
        self._mark += 1
        try:
            self._commit(batch)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
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
        deadline, is_retry = time.monotonic() + PATIENCE_S, False
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
        moved = _begin(connection)
        tx, announced = PostgresTransaction(connection), set[Topic]()
        if is_retry and tx.one(MARKER_EXISTS, writer=self._name, mark=self._mark):
            connection.execute("ROLLBACK")
            return
        try:
            refuse_migrated(moved if self.is_guarded else {})
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
