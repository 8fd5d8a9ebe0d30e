"""How far it is: a bar with rate and time left on a terminal, now and then a line elsewhere.

All of it goes to stderr, so that the answer on stdout stays alone.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_LINE_EVERY_S = 5.0


class Progress:
    """Tells how much is done. `share` is how much of the whole that is, if it is known."""

    def __init__(self, what: str, *, unit: str, every_time: bool = False) -> None:
        self._what, self._unit, self._every_time = what, unit, every_time
        self._started = self._told = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bar = _bar(self._unit)
            self._task = self._bar.add_task(self._what, total=None, count=0, rate="")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, count: int, share: float | None = None) -> None:
        """Say that *count* are done."""
        now = time.monotonic()
        rate = count / max(now - self._started, 0.001)
        if self._bar is not None and self._task is not None:
            total = None if share is None else 1.0
            self._bar.update(
                self._task, total=total, completed=share or 0, count=count, rate=f"{rate:,.0f}/s"
            )
        elif self._every_time or now - self._told >= _LINE_EVERY_S:
            self._told = now
            print(self._line(count, rate, share, now), file=sys.stderr, flush=True)

    def _line(self, count: int, rate: float, share: float | None, now: float) -> str:
        line = f"{self._what}: {count} {self._unit}, {rate:,.0f}/s"
        if not share:
            return line
        left = (now - self._started) * (1 - share) / share
        return f"{line}, {share:.0%}, {left:,.0f} s left"


def _bar(unit: str) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[count]} " + unit),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
    )
