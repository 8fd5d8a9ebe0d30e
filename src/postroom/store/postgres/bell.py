"""A bell between processes: NOTIFY with the commit, LISTEN in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import get_args

import psycopg

from postroom.errors import MailError
from postroom.ports.bell import Topic
from postroom.store.postgres.connection import connect
from postroom.store.rings import Rings

CHANNEL = "postroom"
TOPICS: frozenset[Topic] = frozenset(get_args(Topic))
RING = f"SELECT pg_notify('{CHANNEL}', :topics)"
_LOOK_S = 0.5
_RETRY_S = 0.25


class NotifyBell:
    """Heard by this process once somebody in it has asked.

    When it listens again after the server was gone, every topic rings: what was committed in
    between may have been missed.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._rings = Rings()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = threading.Event()
        self._connection: psycopg.Connection | None = None
        self._thread = threading.Thread(target=self._listen, name="postroom-bell", daemon=True)

    def rung(self, topic: Topic) -> int:
        if self._loop is None and not self._closing.is_set():
            self._loop = asyncio.get_running_loop()
            # Whoever asks looks next, so we must be listening by then.
            with suppress(psycopg.Error, MailError):
                self._connection = self._connected()
            self._thread.start()
        return self._rings.count(topic)

    async def wait(self, topic: Topic, seen: int) -> int:
        self.rung(topic)
        return await self._rings.wait(topic, seen)

    async def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        if self._loop is not None:
            await asyncio.to_thread(self._thread.join)
        self._rings.cancel()

    def _connected(self) -> psycopg.Connection:
        connection = connect(self._url)
        connection.execute(f"LISTEN {CHANNEL}")
        return connection

    def _listen(self) -> None:
        while not self._closing.is_set():
            with suppress(psycopg.Error, MailError):
                if self._connection is None:
                    self._connection = self._connected()
                    self._heard(TOPICS)
                self._hear_from(self._connection)
            if self._connection is not None:
                self._connection.close()
                self._connection = None
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
