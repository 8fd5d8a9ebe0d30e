"""Availability of PostgreSQL: liveness checks, failover between hosts, and stuck writers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroom.errors import Unavailable
from postroom.store.postgres.connection import CONNECT_S, OPTIONS, RETRY_S, connect
from postroom.store.postgres.migrations import WRITING
from postroom.store.transaction import Row

log = logging.getLogger(__name__)

STUCK_S = 30.0
"""How long the holder of the writer lock may stay idle between two statements.

This does not limit a write or a statement: while the server works, or waits for a disk or a lock,
it does not wait for the client. Between two statements the store needs milliseconds, or seconds for
the largest mail on a busy machine.
"""

_IDLE_HOLDER = f"""
      FROM pg_locks l JOIN pg_stat_activity a USING (pid)
     WHERE l.locktype = 'advisory' AND l.granted AND l.classid = {WRITING[0]}
       AND l.objid = {WRITING[1]} AND a.datname = current_database() AND l.database = a.datid
       AND a.wait_event_type = 'Client'
"""
HOLDER = f"SELECT a.pid, a.state_change {_IDLE_HOLDER}"
END = f"""
    SELECT pg_terminate_backend(a.pid) {_IDLE_HOLDER} AND a.pid = $1 AND a.state_change = $2
"""


class StuckWriter:
    """Ends the session of a writer that holds the lock and has stopped responding.

    A writer that is ended by mistake retries, and its marker shows whether the first attempt was
    committed.
    """

    def __init__(self) -> None:
        self._seen: Row | None = None
        self._since = 0.0

    def end(self, connection: psycopg.Connection) -> bool:
        """Terminate the holder of the lock if it has been idle for `STUCK_S`."""
        holder, now = connection.execute(HOLDER).fetchone(), time.monotonic()
        if holder is None or holder != self._seen:
            self._seen, self._since = holder, now
            return False
        if now < self._since + STUCK_S:
            return False
        is_ended = connection.execute(END, holder).fetchone() is not None
        if is_ended:
            log.warning("writer.ended", extra={"backend": holder[0], "silent_s": STUCK_S})
        return is_ended


class Hosts:
    """The hosts of a URL, beginning with the one that answered last."""

    def __init__(self, url: str) -> None:
        self._options = conninfo_to_dict(url)
        names = ("host", "hostaddr", "port")
        lists = {name: str(self._options.get(name) or "").split(",") for name in names}
        self.count = max(len(lists["host"]), len(lists["hostaddr"]))
        self._lists = {name: words for name, words in lists.items() if len(words) == self.count > 1}
        self._first = 0

    @property
    def url(self) -> str:
        """The URL, beginning with the host that answered last."""
        rotated = {
            name: ",".join(values[self._first :] + values[: self._first])
            for name, values in self._lists.items()
        }
        return make_conninfo("", **{**self._options, **rotated})

    def connect(self) -> psycopg.Connection:
        """Connect to the first host that answers, and remember it."""
        connection = connect(self.url)
        self.remember(connection.info)
        return connection

    def remember(self, info: psycopg.ConnectionInfo) -> None:
        """Begin with this host the next time."""
        answered = {"host": info.host, "port": str(info.port)}
        for place in range(self.count):
            known = {name: self._lists[name][place] for name in answered if name in self._lists}
            if known.items() <= answered.items():
                self._first = place
                return


T = TypeVar("T")
SHUTDOWN_CHECK_S = 1.5
"""How soon the server must answer during shutdown."""

_PAUSE_S = 0.25


class Liveness:
    """Waits for work on the server, and gives up when the server does not answer.

    Slow work is not cancelled while the server answers other connections. Abandoned work may still
    be committed later. Work may take `look_s` before the server is checked, which then has
    `connect_s` to answer; together they are our patience.
    """

    def __init__(self, hosts: Hosts, patience_s: float = RETRY_S) -> None:
        self._hosts = hosts
        self.connect_s = min(CONNECT_S, patience_s / 2)
        self.look_s = patience_s - self.connect_s
        self._checking: asyncio.Task[bool] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._is_abandoned = False

    async def wait(self, work: Awaitable[T]) -> T:
        """Return the result of *work*. Raises Unavailable when the server stops answering."""
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        if self._is_abandoned:
            task.cancel()
        self._waiting.add(task)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=self.look_s)
                if not (task.done() or await self._is_alive(task)):
                    raise _unresponsive()
            if self._is_abandoned and task.cancelled():
                raise _unresponsive()
            return task.result()
        finally:
            self._waiting.discard(task)
            task.cancel()

    def begin_shutdown(self) -> None:
        """Check the server repeatedly, and cancel all work as soon as it does not answer."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def close(self) -> None:
        """Stop checking."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        is_reachable = True
        while is_reachable:
            await asyncio.sleep(_PAUSE_S)  # most work is done by then
            is_reachable = await self._check(SHUTDOWN_CHECK_S)
        self._is_abandoned = True
        for task in tuple(self._waiting):
            task.cancel()

    async def _is_alive(self, task: asyncio.Future[Any]) -> bool:
        """Check the server once for all tasks that wait at the same time."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check(self.connect_s * self._hosts.count))
        checking = self._checking
        await asyncio.wait([task, checking], return_when=asyncio.FIRST_COMPLETED)
        return task.done() or checking.result()

    async def _check(self, within_s: float) -> bool:
        """Whether the server answers within a time.

        A refused connection counts as an answer, because the caller retries it.
        """
        try:
            async with asyncio.timeout(within_s):
                connection = await psycopg.AsyncConnection.connect(self._hosts.url, **OPTIONS)
                try:
                    self._hosts.remember(connection.info)
                    await connection.execute("SELECT 1")
                finally:
                    # Leaving `async with` would roll back, which fails and is logged if the
                    # statement was cancelled.
                    await connection.close()
        except (TimeoutError, psycopg.errors.ConnectionTimeout):
            return False
        except psycopg.Error:
            pass
        return True


def _unresponsive() -> Unavailable:
    return Unavailable("the database does not answer; try again", retry_after=2)
