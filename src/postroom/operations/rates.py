"""How fast a key may ask: a bucket of tokens each, filled at a steady rate."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from postroom.errors import RateLimited

_MOST_BUCKETS = 10_000


@dataclass(slots=True)
class Rates:
    """Never lets a caller have more than `burst + per_second * t` requests in any time t."""

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
            self._keep(caller, (tokens - 1, now))
            return
        self._keep(caller, (tokens, now))
        wait = max(1, math.ceil((1 - tokens) / self.per_second))
        raise RateLimited(
            f"more than {self.per_second:g} requests a second; try again in {wait} s",
            retry_after=wait,
        )

    def _keep(self, caller: str, bucket: tuple[float, float]) -> None:
        self._buckets[caller] = bucket
        if len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
