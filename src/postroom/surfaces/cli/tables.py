"""Rows and cells, on a terminal laid out with rich, on a pipe plain with tabs between them.

Mail is written by strangers, so nothing in it may steer the terminal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

_STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls of the terminal, and characters that turn the direction of writing."""


_WHOLE_COLUMNS = 2
"""So many in front are never cut."""


def inert(text: str) -> str:
    """Text that a terminal can only show, not obey."""
    return _STEERS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def cell(value: Any) -> str:
    """A value in one line."""
    if value is None:
        return ""
    if isinstance(value, (tuple, list)):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, dict):
        first, *others = [cell(item) for item in value.values() if item not in (None, "", [])]
        return f"{first} ({'; '.join(others)})" if others else first
    return " ".join(inert(str(value)).split())


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows under names: laid out on a terminal, with tabs on a pipe."""
    titles = [name.replace("_", " ") for name in names]
    if not sys.stdout.isatty():
        for row in (titles, *rows):
            print("\t".join(row))
        return
    _lay_out(titles, rows)


def _lay_out(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """One line for each row: what is too long is cut, but ids and dates stay whole."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    used = [place for place, _ in enumerate(titles) if any(row[place] for row in rows)]
    laid_out = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place in used:
        laid_out.add_column(titles[place], no_wrap=place < _WHOLE_COLUMNS)
    for row in rows:
        laid_out.add_row(*(Text(row[at], no_wrap=True, overflow="ellipsis") for at in used))
    Console().print(laid_out)
