"""Commits on a Citus cluster, and the number up to which readers may follow events.

A commit there is not one moment. The coordinator commits, then each worker that has prepared its
part, so that a reader may see event 8 of one worker before event 7 of another. Readers that follow
events therefore read no further than a number that the writer publishes after the commit.

A commit that was interrupted between the two steps is finished before the next batch. If a worker
is down meanwhile, the number stays where it is until that worker answers.
"""

from __future__ import annotations

import psycopg

from postroom.store.postgres.citus import PUBLISHED
from postroom.store.postgres.migrations import PUBLISHING, WRITING
from postroom.store.postgres.notifier import CHANNEL, TOPICS

_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_LAST = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS number FROM"
_LAST_EVENT = f"{_LAST} events_number_seq"
_LOCK = "BEGIN; SELECT pg_advisory_xact_lock({}, {})"
_RECOVER = "SELECT recover_prepared_transactions()"
_PUBLISH = f"""
    SELECT set_config('synchronous_commit', 'off', true),
           pg_advisory_xact_lock({PUBLISHING[0]}, {PUBLISHING[1]});
    SELECT setval('{PUBLISHED}', {{number}}) FROM ({_LAST} {PUBLISHED}) p WHERE number < {{number}};
    SELECT pg_notify('{CHANNEL}', '{{topics}}')
"""
"""One transaction. It need not be on disk: a number that is too low is safe. Two writers may be
here at once, of which the one with the lower number must not come last."""


def begin_reading(connection: psycopg.Connection, *, on_cluster: bool) -> int | None:
    """Begin to read; on a cluster, return the number up to which all events are committed.

    It is read before any worker is asked: the workers' snapshots are then at least as new.
    """
    if not on_cluster:
        connection.execute(_BEGIN_READING)
        return None
    return _last(connection, f"{_BEGIN_READING}; {_LAST} {PUBLISHED}")


class ClusterCommits:
    """The commits of one connection."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._is_settled = self._is_warned = False
        connection.add_notice_handler(self._notice)

    def recover(self) -> None:
        """Finish commits that were interrupted, unless all are known to be complete."""
        if self._is_settled:
            return
        self._is_warned = False
        _last(self._connection, _LOCK.format(*WRITING))
        self._connection.execute(_RECOVER)
        number = _last(self._connection, _LAST_EVENT)
        self._connection.execute("END")
        self._is_settled = not self._is_warned
        self._publish(number, ",".join(sorted(TOPICS)))

    def commit(self, topics: str) -> None:
        """Commit a batch on all nodes, then publish its events and notify others."""
        number = _last(self._connection, _LAST_EVENT)
        self._is_warned = False
        self._connection.execute("COMMIT")
        # Citus warns of a worker that has prepared the batch and cannot be told to commit it.
        self._is_settled = self._is_settled and not self._is_warned
        self._publish(number, topics)

    def _publish(self, number: int, topics: str) -> None:
        number = number if self._is_settled else 0
        self._connection.execute(_PUBLISH.format(number=number, topics=topics).encode())

    def _notice(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            self._is_warned = True


def _last(connection: psycopg.Connection, statements: str) -> int:
    """Run statements and return the number that the last of them finds."""
    cursor = connection.execute(statements.encode())
    while cursor.nextset():
        pass
    row = cursor.fetchone()
    return int(row[0]) if row and row[0] not in (None, "") else 0
