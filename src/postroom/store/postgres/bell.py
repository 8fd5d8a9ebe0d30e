"""A bell between processes: NOTIFY with the commit, LISTEN in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import get_args

import psycopg

from postroom.errors import MailError
from postroom.ports.bell import Topic
from postroom.store.postgres.hosts import Hosts
from postroom.store.rings import Rings
from postroom.store.threads import begin, until_over

CHANNEL = "postroom"
TOPICS: frozenset[Topic] = frozenset(get_args(Topic))
RING = f"SELECT pg_notify('{CHANNEL}', :topics)"
_LOOK_S = 0.5
_RETRY_S = 0.25


class NotifyBell:
    """Heard by this process once somebody in it has asked.

    When it begins to listen, and again after the server was gone, every topic rings: what was
    committed before may have been missed.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._rings = Rings()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = threading.Event()
        self._thread: Future[None] | None = None

    def rung(self, topic: Topic) -> int:
        if self._loop is None and not self._closing.is_set():
            self._loop = asyncio.get_running_loop()
            self._thread = begin(self._listen, "postroom-bell")
        return self._rings.count(topic)

    async def wait(self, topic: Topic, seen: int) -> int:
        self.rung(topic)
        return await self._rings.wait(topic, seen)

    async def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._rings.cancel()
        if self._thread is not None:
            await until_over(self._thread)

    def _listen(self) -> None:
        while not self._closing.is_set():
            with suppress(psycopg.Error, MailError), self._hosts.connect() as connection:
                connection.execute(f"LISTEN {CHANNEL}")
                self._heard(TOPICS)
                self._hear_from(connection)
            self._closing.wait(_RETRY_S)

    def _hear_from(self, connection: psycopg.Connection) -> None:
        while not self._closing.is_set():
            for notice in connection.notifies(timeout=_LOOK_S, stop_after=1):
                self._heard(TOPICS.intersection(notice.payload.split(",")))

    def _heard(self, topics: Iterable[Topic]) -> None:
        # The loop may be closed by now; then nobody waits either.
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._rings.heard, topics)
