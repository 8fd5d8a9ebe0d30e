"""What happened since the start, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Metrics:
    """Counts requests by route and status, times them, and counts errors by kind.

    A label is a route of the table, never what a caller wrote: the number of lines is bounded.
    """

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    _times: dict[str, list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
    )
    _seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self.requests[method, route, status] += 1
        self._times[route][bisect_left(BUCKETS_S, seconds)] += 1
        self._seconds[route] += seconds

    def text(self) -> str:
        """The page that a scraper reads."""
        return "\n".join([*self._requests(), *self._errors(), *self._latency(), ""])

    def _requests(self) -> Iterator[str]:
        yield "# HELP postroom_http_requests_total Requests answered."
        yield "# TYPE postroom_http_requests_total counter"
        for (method, route, status), count in sorted(self.requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"postroom_http_requests_total{{{labels}}} {count}"

    def _errors(self) -> Iterator[str]:
        yield "# HELP postroom_http_errors_total Requests refused or failed, by kind."
        yield "# TYPE postroom_http_errors_total counter"
        for code, count in sorted(self.errors.items()):
            yield f'postroom_http_errors_total{{code="{code}"}} {count}'

    def _latency(self) -> Iterator[str]:
        name = "postroom_http_request_seconds"
        yield f"# HELP {name} Time until the answer was sent."
        yield f"# TYPE {name} histogram"
        for route, counts in sorted(self._times.items()):
            total = 0
            for bound, count in zip((*BUCKETS_S, "+Inf"), counts, strict=True):
                total += count
                yield f'{name}_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'{name}_count{{route="{route}"}} {total}'
