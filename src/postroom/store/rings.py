"""How often each topic was heard of, and who waits for the next time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from postroom.ports.bell import Topic


class Rings:
    """The part of a bell that is inside this process; used on the event loop alone."""

    def __init__(self) -> None:
        self._counts: Counter[Topic] = Counter()
        self._waiting: dict[Topic, asyncio.Future[None]] = {}

    def count(self, topic: Topic) -> int:
        """How often it was heard."""
        return self._counts[topic]

    async def wait(self, topic: Topic, seen: int) -> int:
        """Return once it was heard more often than *seen*, with the new count."""
        while self._counts[topic] <= seen:
            if topic not in self._waiting:
                self._waiting[topic] = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting[topic])
        return self._counts[topic]

    def heard(self, topics: Iterable[Topic]) -> None:
        """Count some topics once more and wake who waits for them."""
        for topic in topics:
            self._counts[topic] += 1
            waiting = self._waiting.pop(topic, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def cancel(self) -> None:
        """Nobody will hear anything any more."""
        for waiting in self._waiting.values():
            waiting.cancel()
