"""CPU times and their distribution."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

_LOOPS = 1_000_000


def calibration_ms() -> float:
    """CPU time of a fixed loop, for comparison between machines and loads."""
    best = float("inf")
    for _ in range(5):
        started = time.thread_time()
        total = 0
        for value in range(_LOOPS):
            total += value
        best = min(best, time.thread_time() - started)
    return best * 1_000


def cpu_ms(work: Callable[[], Any], times: int = 3) -> tuple[Any, float]:
    """The result of some work, and its median CPU time in this thread."""
    result, took = None, []
    for _ in range(times):
        started = time.thread_time()
        result = work()
        took.append(time.thread_time() - started)
    return result, median(took) * 1_000


class PeakMemory:
    """Samples the memory of this process, without pages of the database file."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        statm = Path("/proc/self/statm")
        while True:
            if statm.exists():
                _, resident, shared, *_ = map(int, statm.read_text().split())
                found = (resident - shared) * resource.getpagesize() / 2**20
            else:
                found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            self.peak_mb = max(self.peak_mb, found)
            time.sleep(0.02)


_WHOLE = 10
"""Larger ratios are printed without a fraction."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, 95th percentile and mean of many times."""

    p50: float
    p95: float
    mean: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Spread:
        ordered = sorted(times)
        return cls(ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)], mean(ordered))

    def __str__(self) -> str:
        return f"{self.p50:.2f} / {self.p95:.2f} / {self.mean:.2f}"

    def ratio_to(self, other: Spread) -> str:
        """The ratio to another, for each number."""
        ratios = (self.p50 / other.p50, self.p95 / other.p95, self.mean / other.mean)
        return " / ".join(f"{ratio:.0f}" if ratio >= _WHOLE else f"{ratio:.1f}" for ratio in ratios)


def table(rows: Sequence[Sequence[object]]) -> None:
    """Print rows with aligned columns, as Markdown; the first row is the header."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for number, row in enumerate(cells):
        line = " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(f"| {line} |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
