"""Requests counted and timed, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from postroom.pipeline.counters import Name, SharedCounters

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_REQUESTS, _ERRORS, _TIMES = "requests", "errors", "times"
_NS = 1_000_000_000


class Metrics:
    """Counts requests by route and status, times them, and counts errors by kind.

    A label is a route of the table, never text of a caller, so the number of samples is bounded.
    """

    def __init__(self, counters: SharedCounters) -> None:
        self._counters = counters

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._counters.own((_REQUESTS, method, route, str(status)))[0] += 1
        times = self._counters.own((_TIMES, route), len(BUCKETS_S) + 2)
        times[bisect_left(BUCKETS_S, seconds)] += 1
        times[len(BUCKETS_S) + 1] += int(seconds * _NS)

    def refuse(self, code: str) -> None:
        """Count a request that was refused or failed."""
        self._counters.own((_ERRORS, code))[0] += 1

    def text(self) -> str:
        """The samples, as a scraper reads them."""
        totals = self._counters.totals()
        kinds = (_requests(totals), _errors(totals), _latency(totals))
        return "\n".join([*(line for kind in kinds for line in kind), ""])


def heading(name: str, kind: str, meaning: str) -> str:
    """The lines above the samples of a metric."""
    return f"# HELP postroom_{name} {meaning}\n# TYPE postroom_{name} {kind}"


def _requests(totals: Mapping[Name, list[int]]) -> Iterator[str]:
    yield heading("http_requests_total", "counter", "Requests answered.")
    for (method, route, status), [count] in _of(_REQUESTS, totals):
        labels = f'method="{method}",route="{route}",status="{status}"'
        yield f"postroom_http_requests_total{{{labels}}} {count}"


def _errors(totals: Mapping[Name, list[int]]) -> Iterator[str]:
    yield heading("http_errors_total", "counter", "Requests refused or failed, by kind.")
    for (code,), [count] in _of(_ERRORS, totals):
        yield f'postroom_http_errors_total{{code="{code}"}} {count}'


def _latency(totals: Mapping[Name, list[int]]) -> Iterator[str]:
    name = "postroom_http_request_seconds"
    yield heading("http_request_seconds", "histogram", "Time until the response was sent.")
    for (route,), [*counts, taken_ns] in _of(_TIMES, totals):
        total = 0
        for bound, count in zip((*BUCKETS_S, "+Inf"), counts, strict=True):
            total += count
            yield f'{name}_bucket{{route="{route}",le="{bound}"}} {total}'
        yield f'{name}_sum{{route="{route}"}} {taken_ns / _NS:.6f}'
        yield f'{name}_count{{route="{route}"}} {total}'


def _of(kind: str, totals: Mapping[Name, list[int]]) -> list[tuple[Name, list[int]]]:
    return sorted((name[1:], numbers) for name, numbers in totals.items() if name[0] == kind)
