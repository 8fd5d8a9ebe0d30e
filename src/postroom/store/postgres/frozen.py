"""A writer that has fallen silent in the middle of a write: others end its session, and go on.

A process that is stopped, or a machine that hangs, keeps the lock of the house for as long as it
lives. The server does not help: what is sent in a pipeline is to it one statement that runs.
"""

from __future__ import annotations

import logging
import time

import psycopg

from postroom.store.postgres.migrations import WRITING
from postroom.store.transaction import Row

log = logging.getLogger(__name__)

FROZEN_S = 30.0
"""How long the server may wait for the next word of one that writes.

It is no limit on a write, nor on a statement: while the server works, or waits for a disk or a
lock, it does not wait for the writer. Between two statements our functions take milliseconds, or
seconds for the largest mail on a machine that is busy.
"""

_WAITS_FOR_IT = f"""
      FROM pg_locks l JOIN pg_stat_activity a USING (pid)
     WHERE l.locktype = 'advisory' AND l.granted AND l.classid = {WRITING[0]}
       AND l.objid = {WRITING[1]} AND a.datname = current_database() AND l.database = a.datid
       AND a.wait_event_type = 'Client'
"""
HOLDER = f"SELECT a.pid, a.state_change {_WAITS_FOR_IT}"
END = f"""
    SELECT pg_terminate_backend(a.pid) {_WAITS_FOR_IT} AND a.pid = $1 AND a.state_change = $2
"""


class Frozen:
    """What one process has seen of whoever holds the lock.

    If it is ended by mistake, that costs it time: it begins again, and its mark says whether the
    first attempt was committed.
    """

    def __init__(self) -> None:
        self._seen: Row | None = None
        self._since = 0.0

    def end(self, connection: psycopg.Connection) -> bool:
        """End who holds the lock, and has not said a word since we looked long ago."""
        holder, now = connection.execute(HOLDER).fetchone(), time.monotonic()
        if holder is None or holder != self._seen:
            self._seen, self._since = holder, now
            return False
        if now < self._since + FROZEN_S:
            return False
        is_ended = connection.execute(END, holder).fetchone() is not None
        if is_ended:
            log.warning("writer.ended", extra={"backend": holder[0], "silent_s": FROZEN_S})
        return is_ended
