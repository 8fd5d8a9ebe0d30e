"""The notifier between processes: NOTIFY in the commit, LISTEN in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import get_args

import psycopg

from postroom.errors import MailError
from postroom.ports.events import Topic
from postroom.store.postgres.health import Hosts
from postroom.store.thread_pool import start_thread, wait_for_thread
from postroom.store.transaction import Subscriptions

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
