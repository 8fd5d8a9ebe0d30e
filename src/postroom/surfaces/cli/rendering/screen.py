"""Where text goes: a terminal of some size with a pager, or a pipe."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from postroom.config.reading import environment_with, preference

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Screen:
    """Standard output. Text for a pipe is stable: its width, colours and local time do not count.

    `is_wide` shows every column, uncut.
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
        """Print it; what is longer than the terminal goes through the pager."""
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
        except BrokenPipeError:  # it was left before the end
            pager.wait()
    # A shell answers 126 or 127 if a pager cannot be run.
    return pager.returncode not in (126, 127)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ctrl-C is for the pager, which goes on."""
    # Not SIG_IGN, which the pager would inherit.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
