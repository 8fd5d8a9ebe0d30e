"""Limits on CPU time that hold on any machine: multiples of the time of a fixed Python loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

STEPS = 2_000_000


def is_within(loops: float, measure_s: Callable[[], float]) -> bool:
    """Whether one of three measurements is below the time of so many loops.

    On a busy machine one measurement may be slow, and the loop beside it too.
    """
    for _ in range(3):
        spent_s = measure_s()
        if spent_s < loops * _first_loop_s() or spent_s < loops * loop_s():
            return True
    return False


def loop_s() -> float:
    """The CPU time of a loop of two million steps: about 0.1 s on a fast machine, in 2026."""
    started, total = time.thread_time(), 0
    for number in range(STEPS):
        total += number % 7
    return time.thread_time() - started


@cache
def _first_loop_s() -> float:
    return min(loop_s() for _ in range(3))
