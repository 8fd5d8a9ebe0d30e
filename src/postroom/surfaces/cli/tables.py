"""Text output: a terminal of some size with a pager, or a pipe; tables for both.

Tables are aligned within the width of a terminal, and separated by tabs in a pipe.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from postroom.config.loading import environment_with, preference

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Screen:
    """Standard output. Text for a pipe is stable: it does not depend on width, colours and local
    time.

    `is_wide` shows every column in full.
    """

    is_terminal: bool
    width: int = 80
    height: int = 24
    has_colour: bool = False
    is_wide: bool = False

    @classmethod
    def here(cls, *, is_wide: bool = False) -> Screen:
        """The standard output of this process."""
        if not sys.stdout.isatty():
            return cls(is_terminal=False, is_wide=is_wide)
        width, height = shutil.get_terminal_size()
        has_colour = not preference("NO_COLOR") and preference("TERM") != "dumb"
        return cls(True, width, height, has_colour, is_wide)

    def bold(self, text: str) -> str:
        return f"{BOLD}{text}{PLAIN}" if self.has_colour else text


@dataclass(slots=True)
class Text:
    """Lines for a screen, and notes about them.

    On a pipe, notes go to stderr: it contains only rows, and a partial list is noticed.
    """

    screen: Screen
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> None:
        self.lines += [part for line in lines for part in line.split("\n")]

    def note(self, line: str) -> None:
        self.notes.append(line)

    def show(self) -> None:
        """Print it; longer text goes through the pager."""
        if not self.screen.is_terminal:
            for line in self.lines:
                print(line)
            for line in self.notes:
                print(line, file=sys.stderr)
            return
        lines = [*self.lines, *self.notes]
        if not lines:
            return
        text = "\n".join(lines) + "\n"
        if _rows(lines, self.screen.width) < self.screen.height or not _page(text):
            sys.stdout.write(text)


def _rows(lines: list[str], width: int) -> int:
    """How many rows of the terminal the lines take."""
    from rich.cells import cell_len

    return sum(1 + max(0, cell_len(line) - 1) // width for line in lines)


def _page(text: str) -> bool:
    """Show a text in the pager; False if there is none."""
    chosen = preference("PAGER")
    command = shlex.split("less -FRX" if chosen is None else chosen)
    if not command or command[0] == "cat" or shutil.which(command[0]) is None:
        return False
    if not sys.stdin.isatty():
        return False
    env = environment_with(LESS="FRX")  # as git does, for PAGER=less
    sys.stdout.flush()
    with _interrupts_ignored():
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
        try:
            pager.communicate(text.encode("utf-8", "replace"))
        except BrokenPipeError:  # the user left it before the end
            pager.wait()
    # A shell answers 126 or 127 if a pager cannot be run.
    return pager.returncode not in (126, 127)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C, which is for the pager."""
    # Not SIG_IGN, which the pager would inherit.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


SHORT_CHARS = 7
"""The length of a short id without its kind: one of a million is ambiguous with 0.003 %."""

KINDS = {
    "attachment_id": "att",
    "before": "msg",
    "delivery_id": "dlv",
    "draft_id": "drf",
    "identity_id": "idn",
    "in_reply_to": "msg",
    "inbox_id": "inb",
    "inboxes": "inb",
    "key_id": "key",
    "message_id": "msg",
    "message_ids": "msg",
    "rule_id": "rul",
    "thread_id": "thr",
    "thread_ids": "thr",
    "webhook_id": "whk",
}
"""Arguments that take a short id, and its kind."""

MIXED = frozenset(("target", "since"))
"""Arguments and columns with ids of several kinds: there, a short id begins with its kind."""

_ID = re.compile(r"[a-z]{3}_(?:[0-9a-z]{26}|[0-9a-z]{12})")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_BETWEEN = 2
_LEAST = 8
_LEAST_REST = 24
_FULL = 100
"""The width of a terminal for which `most` is meant; a narrower one gets less."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: `most` limits its width, `is_rest` gets the remaining width, and `is_optional` is
    omitted if that is too little.
    """

    title: str
    most: int | None = None
    is_rest: bool = False
    is_optional: bool = False


def columns_of(spec: str) -> dict[str, Column]:
    """Columns by the names of their fields, from `id who:22 subject:* labels:14?`."""
    found = {}
    for word in spec.split():
        name, _, width = word.rstrip("?").partition(":")
        title = _TITLES.get(name, re.sub(r"_(id|at)$", "", name).replace("_", " "))
        most = int(width) if width.isdigit() else None
        found[name] = Column(title, most, width == "*", word.endswith("?"))
    return found


_TITLES = {
    "marks": "",
    "who": "from",
    "message_count": "messages",
    "last_date": "date",
    "is_default": "default",
}


def lines_of(columns: Sequence[Column], rows: Sequence[Sequence[str]], screen: Screen) -> list[str]:
    """The lines of a table. Empty columns are left out on a terminal."""
    titles = [column.title for column in columns]
    if not screen.is_terminal:
        return ["\t".join(row) for row in (titles, *rows)]
    from rich.cells import cell_len, set_cell_size

    used = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    needed = {at: max(cell_len(row[at]) for row in (titles, *rows)) for at in used}
    widths = needed if screen.is_wide else _fitted(columns, needed, screen.width)
    shown = list(widths)
    is_right = {at: all(_is_number(row[at]) for row in rows) for at in shown}

    def line(row: Sequence[str]) -> str:
        cells = []
        for at in shown:
            text, width = row[at], widths[at]
            if cell_len(text) > width:
                text = set_cell_size(text, width - 1).rstrip() + "…"
            blank = " " * (width - cell_len(text))
            cells.append(blank + text if is_right[at] else text + blank)
        return (" " * _BETWEEN).join(cells).rstrip()

    return [screen.bold(line(titles)), *(line(row) for row in rows)]


def _is_number(text: str) -> bool:
    return not text or text.replace(".", "").isdigit()


def _fitted(columns: Sequence[Column], needed: dict[int, int], width: int) -> dict[int, int]:
    """The width of each column, by its place; too narrow, spare ones are left out."""
    share = min(width, _FULL) / _FULL
    widths = {at: min(c, int((columns[at].most or c / share) * share)) for at, c in needed.items()}
    rest = next((at for at in widths if columns[at].is_rest), None)
    least = min(needed.get(rest, 0), _LEAST_REST) if rest is not None else 0

    def left() -> int:
        fixed = sum(cells for at, cells in widths.items() if at != rest)
        return width - fixed - _BETWEEN * (len(widths) - 1)

    for at in [at for at in reversed(widths) if columns[at].is_optional]:
        if left() < least:
            del widths[at]
    for at in [at for at in reversed(widths) if at not in (0, rest)]:
        # Even the others, if the terminal is very narrow.
        if left() + sum(_shrinkable(widths, columns)) < min(least, _LEAST):
            del widths[at]
    for at in reversed([at for at in widths if columns[at].most]):
        widths[at] = max(min(widths[at], _LEAST), widths[at] - max(0, least - left()))
    if rest is not None:
        widths[rest] = max(_LEAST, min(needed[rest], left()))
    return widths


def _shrinkable(widths: dict[int, int], columns: Sequence[Column]) -> list[int]:
    return [max(0, cells - _LEAST) for at, cells in widths.items() if columns[at].most]


def is_id(text: str) -> bool:
    """Whether a text is a whole id."""
    return _ID.fullmatch(text) is not None


def short_ids(texts: Sequence[str], column: str = "id") -> list[str]:
    """Ids shortened as far as they stay distinct, without their prefix where the column implies it.

    Only kinds that commands accept in this form are shortened; other texts stay as they are.
    """
    has_kind = column in MIXED
    different = {text for text in texts if is_id(text) and text[:3] in KINDS.values()}
    chars = SHORT_CHARS
    while len({_shortened(text, chars) for text in different}) < len(different):
        chars += 1
    kept = 4 if has_kind else 0
    return [t[:kept] + _shortened(t, chars) if t in different else t for t in texts]


def _shortened(text: str, chars: int) -> str:
    return text[4 : 4 + chars]


def local_time(text: str, now: datetime | None = None, *, is_day: bool = False) -> str:
    """A stored time in a readable form: `14:05`, `Nov 17 14:05`, `2025-11-17`; else the text.

    With *is_day*, the time of another day is left out.
    """
    if not _MOMENT.fullmatch(text):
        return text
    now = (now or datetime.now(UTC)).astimezone()
    then = datetime.fromisoformat(text).astimezone()
    if then.date() == now.date():
        return f"{then:%H:%M}"
    if then.year != now.year:
        return f"{then:%Y-%m-%d}"
    return f"{then:%b} {then.day:2}" + ("" if is_day else f" {then:%H:%M}")


def whole_time(text: str) -> str:
    """A stored time in full, in local time: `Tue 17 Nov 2026 14:05 +0100`."""
    if not _MOMENT.fullmatch(text):
        return text
    return f"{datetime.fromisoformat(text).astimezone():%a %d %b %Y %H:%M %z}"


def wrapped(text: str, width: int) -> list[str]:
    """Lines that break between words; a word that is longer is left to the terminal."""
    from rich.cells import cell_len

    lines: list[str] = []
    for line in text.split("\n"):
        if cell_len(line) <= width:
            lines.append(line)
            continue
        current, used = "", 0
        for word in re.findall(r"\s*\S+", line):
            cells = cell_len(word)
            if current and used + cells > width:
                lines.append(current)
                word, current, used = word.lstrip(), "", 0
                cells = cell_len(word)
            current, used = current + word, used + cells
        lines.append(current)
    return lines
