"""Writing to a terminal or a pipe: JSON, tables, progress."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Collection, Sequence
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
        from postroom.mail.text.invisible import unseen  # late, for a quick start

        line = unseen().sub(_escaped, line)
    return line.encode("utf-8", "replace") + b"\n"


def _escaped(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"


def write_bytes(content: bytes, stream: TextIO | None = None) -> None:
    """Write raw bytes, by default to standard output."""
    stream = stream or sys.stdout
    stream.flush()
    stream.buffer.write(content)
    stream.buffer.flush()


_WHOLE_COLUMNS = 2
"""The first columns are never truncated, except a name beside an id."""
_BETWEEN = 3
"""Spaces between two columns."""


def inert(text: str) -> str:
    """Text without control characters and invisible characters."""
    from postroom.mail.text.invisible import cleaned, steering  # late, for a quick start

    safe = steering().sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
    return cleaned(safe, one_line=True)


def cell(value: Any) -> str:
    """A value on one line."""
    if value is None:
        return ""
    if isinstance(value, (tuple, list)):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, dict):
        first, *others = [cell(item) for item in value.values() if item not in (None, "", [])]
        return f"{first} ({'; '.join(others)})" if others else first
    return " ".join(inert(str(value)).split())


def table(names: Sequence[str], rows: Sequence[Sequence[str]], spare: Collection[str] = ()) -> None:
    """A table: aligned on a terminal, separated by tabs in a pipe. Columns in *spare* are left out
    if the terminal is too narrow.
    """
    titles = [name.replace("_", " ") for name in names]
    if not sys.stdout.isatty():
        for row in (titles, *rows):
            print("\t".join(row))
        return
    _lay_out(titles, rows, {name.replace("_", " ") for name in spare})


def _lay_out(titles: Sequence[str], rows: Sequence[Sequence[str]], spare: Collection[str]) -> None:
    """One line per row; long values are truncated, ids and dates are not."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    used = [place for place, _ in enumerate(titles) if any(row[place] for row in rows)]
    console = Console()
    width = sum(_BETWEEN + max(len(row[place]) for row in (titles, *rows)) for place in used)
    if width > console.width:
        used = [place for place in used if titles[place] not in spare]
    laid_out = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place in used:
        is_name = place > 0 and titles[place] == "name"
        laid_out.add_column(titles[place], no_wrap=place < _WHOLE_COLUMNS and not is_name)
    for row in rows:
        laid_out.add_row(*(Text(row[at], no_wrap=True, overflow="ellipsis") for at in used))
    console.print(laid_out)


_LINE_EVERY_S = 5.0


class Progress:
    """Progress on stderr; `share` is the fraction that is done, if known."""

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

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def tell(self, count: int, share: float | None = None) -> None:
        """Report that *count* are done."""
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
