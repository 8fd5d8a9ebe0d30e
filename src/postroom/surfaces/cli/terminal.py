"""Writing to a terminal or a pipe: JSON, tables, progress."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


def write_json(value: Any, stream: TextIO | None = None) -> None:
    """Write compact JSON in UTF-8, whatever the terminal is set to."""
    write_bytes(json_line(value), stream)


def json_line(value: Any) -> bytes:
    """A value as a line of compact JSON; control and invisible characters are escaped."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not line.isascii() or "\x7f" in line:
        from postroom.mail.text.invisible import invisible_pattern  # late, for a quick start

        line = invisible_pattern().sub(_escaped, line)
    return line.encode("utf-8", "replace") + b"\n"


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"


def write_bytes(content: bytes, stream: TextIO | None = None) -> None:
    """Write raw bytes, by default to standard output."""
    stream = stream or sys.stdout
    stream.flush()
    stream.buffer.write(content)
    stream.buffer.flush()


def without_controls(text: str) -> str:
    """Text without control characters and invisible characters."""
    from postroom.mail.text.invisible import cleaned, control_pattern  # late, for a quick start

    safe = control_pattern().sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
    return cleaned(safe, one_line=True)


def cell(value: Any) -> str:
    """A value on one line."""
    if value is None:
        return ""
    if isinstance(value, (tuple, list)):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, dict):
        given = {name: item for name, item in value.items() if item not in (None, "", [])}
        if any(isinstance(item, list) for item in given.values()):
            return "; ".join(f"{name} {cell(item)}" for name, item in given.items())
        first, *others = [cell(item) for item in given.values()] or [""]
        return f"{first} ({'; '.join(others)})" if others else first
    return " ".join(without_controls(str(value)).split())


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the last column but one gets the rest of the width of a terminal."""
    from postroom.surfaces.cli.tables import Column, Screen, Text, lines_of

    text = Text(Screen.here())
    rest = names[-2] if len(names) > 2 else names[-1]
    columns = [Column(name.replace("_", " "), is_rest=name == rest) for name in names]
    text.add(*lines_of(columns, rows, text.screen))
    text.show()


_LINE_EVERY_S = 5.0


class Progress:
    """Progress on stderr; `share` is the fraction that is done, if known."""

    def __init__(self, what: str, *, unit: str, every_time: bool = False) -> None:
        self._what, self._unit, self._every_time = what, unit, every_time
        self._started = self._updated = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._bar = _bar(self._unit)
            self._task = self._bar.add_task(self._what, total=None, count=0, rate="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, count: int, share: float | None = None) -> None:
        """Report that *count* are done."""
        now = time.monotonic()
        rate = count / max(now - self._started, 0.001)
        if self._bar is not None and self._task is not None:
            total = None if share is None else 1.0
            self._bar.update(
                self._task, total=total, completed=share or 0, count=count, rate=f"{rate:,.0f}/s"
            )
        elif self._every_time or now - self._updated >= _LINE_EVERY_S:
            self._updated = now
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
