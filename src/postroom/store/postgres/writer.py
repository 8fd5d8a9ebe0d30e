"""One writer at a time in the whole house, and a mark that tells what was committed.

The functions of the store count on what SQLite gives them: nobody else writes meanwhile, and
numbers are in the order of commits (events, cursors and the search index rely on it). Here an
advisory lock gives them the same. All who wait in a process share one transaction, so the lock
costs a sync for each batch and not for each message.
"""

from __future__ import annotations

import logging
import secrets
import time

import psycopg
from psycopg.errors import LockNotAvailable

from postroom.errors import Conflict
from postroom.ports.bell import Topic
from postroom.store.postgres.bell import RING
from postroom.store.postgres.connection import (
    PATIENCE_S,
    PAUSE_S,
    PostgresTransaction,
    explained,
    is_passing,
)
from postroom.store.postgres.frozen import Frozen
from postroom.store.postgres.hosts import Hosts
from postroom.store.postgres.migrations import WRITING
from postroom.store.standing import MOVED, refuse_moved
from postroom.store.writing import Job

log = logging.getLogger(__name__)

LOCK = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    f"SELECT pg_advisory_xact_lock({WRITING[0]}, {WRITING[1]})"
)
"""Whatever is set for the database: who has waited must see what others wrote meanwhile."""

BEGIN = f"{LOCK}; {MOVED}"
READ_MARK = "SELECT 1 FROM write_marks WHERE writer = :writer AND mark = :mark"
WRITE_MARK = """
    INSERT INTO write_marks (writer, mark) VALUES (:writer, :mark)
    ON CONFLICT (writer) DO UPDATE SET mark = excluded.mark, at = now()
"""
FORGET_MARKS = "DELETE FROM write_marks WHERE at < now() - interval '1 day'"
"""Each process leaves one, and looks for it at once, unless it was suspended at a commit."""


class Writer:
    """The connection that writes.

    When it breaks at the commit itself, nobody has said whether that happened. So each batch
    leaves a mark, and a second attempt looks for it first: the lock says that the first is over.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._name = secrets.token_hex(8)
        self._mark = 0
        self._connection: psycopg.Connection | None = None
        self._frozen = Frozen()
        self.is_hurried = self.is_guarded = False

    def commit(self, batch: list[Job]) -> None:
        """Run all jobs in one transaction; one that fails leaves the others alone."""
        self._mark += 1
        try:
            self._insist(batch)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            self.close()
            log.warning("write.failed", extra={"error": str(error)})
            for job in batch:
                job.error = job.error or explained(error)

    def close(self) -> None:
        """Let go of the connection; the next batch opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _insist(self, batch: list[Job]) -> None:
        deadline, is_again = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                self._attempt(batch, is_again=is_again)
            except psycopg.Error as error:
                # Who was frozen comes late to its second attempt, and gets it all the same.
                is_late = is_again and (self.is_hurried or time.monotonic() > deadline)
                if not self._may_go_now(error, is_late=is_late):
                    raise
                self.close()
                is_again = True
                time.sleep(PAUSE_S)
            else:
                return

    def _may_go_now(self, error: psycopg.Error, *, is_late: bool) -> bool:
        """Whether another attempt may succeed."""
        if isinstance(error, LockNotAvailable) and self._connection is not None:
            self._connection.execute("ROLLBACK")
            return self._frozen.end(self._connection)
        return is_passing(error) and not is_late

    def _attempt(self, batch: list[Job], *, is_again: bool) -> None:
        if self._connection is None:
            self._connection = self._hosts.connect()
        connection = self._connection
        moved = _begin(connection)
        tx, announced = PostgresTransaction(connection), set[Topic]()
        if is_again and tx.one(READ_MARK, writer=self._name, mark=self._mark):
            connection.execute("ROLLBACK")
            return
        try:
            refuse_moved(moved if self.is_guarded else {})
        except Conflict as error:
            connection.execute("ROLLBACK")
            for job in batch:
                job.error = error
            return
        for job in batch:
            announced |= _run(connection, job)
        tx.run(WRITE_MARK, writer=self._name, mark=self._mark)
        if self._mark == 1:
            tx.run(FORGET_MARKS)
        if announced:
            tx.one(RING, topics=",".join(sorted(announced)))
        connection.execute("COMMIT")


def _begin(connection: psycopg.Connection) -> dict[str, bytes]:
    """Wait for our turn; what says that the house has moved away, if it has."""
    cursor = connection.execute(BEGIN)
    while cursor.nextset():
        pass
    return dict(cursor.fetchall())


def _run(connection: psycopg.Connection, job: Job) -> set[Topic]:
    """Do one job, and return what it announced; if it fails, nothing of it stays."""
    job.result = job.error = None
    try:
        with connection.pipeline() as pipeline:
            connection.execute("SAVEPOINT job")
            transaction = PostgresTransaction(connection, pipeline)
            job.result = job.work(transaction)
            connection.execute("RELEASE job")
    except Exception as error:
        if is_passing(error):
            raise
        job.result, job.error = None, explained(error)
        connection.execute("ROLLBACK TO job")
        connection.execute("RELEASE job")
        return set()
    return transaction.announced
