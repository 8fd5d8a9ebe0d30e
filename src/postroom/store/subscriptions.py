"""Counts announcements by topic, and wakes the tasks that wait for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from postroom.ports.events import Topic


class Subscriptions:
    """The part of a notifier inside this process; used on the event loop only."""

    def __init__(self) -> None:
        self._counts: Counter[Topic] = Counter()
        self._waiting: dict[Topic, asyncio.Future[None]] = {}
        self.is_closed = False

    def count(self, topic: Topic) -> int:
        """The number of announcements of a topic."""
        return self._counts[topic]

    async def wait(self, topic: Topic, seen: int) -> int:
        """Return the new count once it is higher than *seen*. Raises CancelledError if closed."""
        while self._counts[topic] <= seen:
            if self.is_closed:
                raise asyncio.CancelledError
            if topic not in self._waiting:
                self._waiting[topic] = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting[topic])
        return self._counts[topic]

    def announced(self, topics: Iterable[Topic]) -> None:
        """Count an announcement of each topic, and wake those who wait for it."""
        for topic in topics:
            self._counts[topic] += 1
            waiting = self._waiting.pop(topic, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def close(self) -> None:
        """Cancel everyone who waits, and everyone who will."""
        self.is_closed = True
        for waiting in self._waiting.values():
            waiting.cancel()
