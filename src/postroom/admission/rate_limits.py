"""Rate limits per caller, and the concurrency limit of the process."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        if tokens >= 1:
            self._store(caller, (tokens - 1, now))
            return
        self._store(caller, (tokens, now))
        wait = max(1, math.ceil((1 - tokens) / self.per_second))
        raise RateLimited(
            f"more than {self.per_second:g} requests a second; try again in {wait} s",
            retry_after=wait,
        )

    def _store(self, caller: str, bucket: tuple[float, float]) -> None:
        self._buckets[caller] = bucket
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)


MAX_AT_ONCE = 128
"""Requests that one process runs at the same time; those that wait for mail do not count."""


@dataclass(slots=True)
class ConcurrencyLimit:
    """Limits the number of running requests.

    A request counts after its body has arrived (see `request_bodies`).
    """

    most: int = MAX_AT_ONCE
    taken: int = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a request until the block ends. Raises Unavailable if the limit is reached."""
        if self.taken >= self.most:
            raise Unavailable("the server is at capacity; try again in 1 s", retry_after=1)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
