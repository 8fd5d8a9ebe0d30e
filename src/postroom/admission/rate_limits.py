"""Rate limits per caller, the concurrency limit of the process, and the fair queue of callers."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from postroom.errors import RateLimited, Unavailable

_MAX_BUCKETS = 10_000


@dataclass(slots=True)
class RateLimits:
    """A token bucket per caller: at most `burst + per_second * t` requests in any time t."""

    per_second: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, caller: str) -> None:
        """Count one request. Raises RateLimited when the bucket is empty."""
        now = self.clock()
        tokens, since = self._buckets.pop(caller, (float(self.burst), now))
        tokens = min(float(self.burst), tokens + (now - since) * self.per_second)
        is_allowed = tokens >= 1
        self._buckets[caller] = (tokens - is_allowed, now)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        if is_allowed:
            return
        wait = max(1, math.ceil((1 - tokens) / self.per_second))
        raise RateLimited(
            f"more than {self.per_second:g} requests a second; try again in {wait} s",
            retry_after=wait,
        )


MAX_AT_ONCE = 128
"""Requests that one process runs at the same time; those that wait for mail do not count."""


@dataclass(slots=True)
class ConcurrencyLimit:
    """Limits the number of running requests.

    A request counts after its body has arrived (see `request_bodies`).
    """

    limit: int = MAX_AT_ONCE
    running: int = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count a request until the block ends. Raises Unavailable if the limit is reached."""
        if self.running >= self.limit:
            raise Unavailable("the server is at capacity; try again in 1 s", retry_after=1)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1


MAX_RUNNING_PER_KEY = 2
MAX_WAITING = 64
"""Half of the concurrency limit; the other half is for other keys."""
RECENT_S = 1.0
COUNTED_AS_RUNNING_S = 0.01
"""A request that takes longer waits for something else, and no longer counts as running."""
LONG_QUEUE = 8
"""A key with more waiting requests than this gets only its share of the time."""
TIME_SHARE = 0.25
"""The share of the time for such a key."""
BURST_S = 0.05
"""By how much it may exceed its share for a moment."""


@dataclass(slots=True)
class _Queue:
    """The requests of one key: how many run, and which wait."""

    running: int = 0
    used_until: float = 0.0
    timer: asyncio.TimerHandle | None = None
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


@dataclass(slots=True)
class FairQueue:
    """Runs all requests of a key that is alone; of several keys, each runs a few at a time.

    Running requests share one processor, so a key with fifty of them would get fifty times as much
    of it as a key with one. A key with many waiting requests gets only a share of the time.
    """

    _queues: dict[str, _Queue] = field(default_factory=dict)
    _seen: OrderedDict[str, float] = field(default_factory=OrderedDict)

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Wait until a request of this caller may run. Raises RateLimited if too many wait."""
        self._record(caller)
        queue = self._queues.setdefault(caller, _Queue())
        if queue.waiting or not self._is_free(queue):
            await self._wait(caller, queue)
        else:
            queue.running += 1
        began = asyncio.get_running_loop().time()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._end(caller, queue, began)

        late = asyncio.get_running_loop().call_later(COUNTED_AS_RUNNING_S, end)
        try:
            yield
        finally:
            late.cancel()
            end()

    def _record(self, caller: str) -> None:
        now = asyncio.get_running_loop().time()
        self._seen[caller] = now
        self._seen.move_to_end(caller)
        while next(iter(self._seen.values())) < now - RECENT_S:
            self._seen.popitem(last=False)

    def _is_free(self, queue: _Queue) -> bool:
        return len(self._seen) <= 1 or queue.running < (
            1 if len(queue.waiting) > LONG_QUEUE else MAX_RUNNING_PER_KEY
        )

    async def _wait(self, caller: str, queue: _Queue) -> None:
        if len(queue.waiting) >= MAX_WAITING:
            raise RateLimited(
                f"more than {MAX_WAITING} requests of this key are waiting; wait for responses",
                retry_after=1,
            )
        turn = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in queue.waiting:
                queue.waiting.remove(turn)
            elif not turn.cancelled():
                queue.running -= 1
            self._continue(caller, queue)
            raise

    def _end(self, caller: str, queue: _Queue, began: float) -> None:
        now = asyncio.get_running_loop().time()
        queue.running -= 1
        paid = max(queue.used_until, began) + (now - began) / TIME_SHARE
        queue.used_until = min(paid, now + 2 * BURST_S)
        self._continue(caller, queue)

    def _continue(self, caller: str, queue: _Queue) -> None:
        self._admit(queue)
        if not queue.running and not queue.waiting:
            self._queues.pop(caller, None)

    def _admit(self, queue: _Queue) -> None:
        while queue.waiting and self._is_free(queue):
            if (pause := self._pause(queue)) > 0:
                if queue.timer is not None:
                    queue.timer.cancel()
                queue.timer = asyncio.get_running_loop().call_later(pause, self._admit, queue)
                return
            turn = queue.waiting.popleft()
            if not turn.done():
                queue.running += 1
                turn.set_result(None)

    def _pause(self, queue: _Queue) -> float:
        """How long a key that is over its share has to wait."""
        if len(self._seen) <= 1 or len(queue.waiting) <= LONG_QUEUE:
            return 0.0
        return queue.used_until - BURST_S - asyncio.get_running_loop().time()
