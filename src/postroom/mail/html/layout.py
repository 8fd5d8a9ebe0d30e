"""Layout of visible text: paragraphs, lists, rows and quotes as plain text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SPACES = re.compile(r"[ \t\n\r\f]+")
QUOTE = "> "
_RULE = "-" * 10
_DEEPEST = 20


@dataclass(slots=True)
class Page:
    """Text under construction. Quotes and indents are prefixes of the lines they hold."""

    lines: list[str] = field(default_factory=list)
    _prefixes: list[str] = field(default_factory=list)
    _line: list[str] = field(default_factory=list)
    _gap: int = 0
    _needs_space: bool = False
    _marker: str = ""
    _indent: str = ""
    _quote: str = ""

    def write(self, text: str) -> None:
        """Running text: white space collapses."""
        words = _SPACES.sub(" ", text)
        if words[:1] == " ":
            self._needs_space = True
            words = words[1:]
        if not words:
            return
        ends_with_space = words[-1] == " "
        self._put(words[:-1] if ends_with_space else words)
        self._needs_space = ends_with_space

    def write_pre(self, text: str) -> None:
        """Text whose line breaks and spaces count."""
        first, *rest = text.split("\n")
        self._put(first)
        for line in rest:
            self.break_line()
            self._put(line)

    def _put(self, words: str) -> None:
        if not words:
            return
        if self._line and self._needs_space:
            self._line.append(" ")
        self._needs_space = False
        self._line.append(words)

    def place(self) -> tuple[int, int]:
        """Where we are, to be handed to `since`."""
        return len(self.lines), len(self._line)

    def since(self, place: tuple[int, int]) -> str:
        """What was written on this line since then; nothing if the line is over."""
        lines, pieces = place
        return "".join(self._line[pieces:]).strip() if len(self.lines) == lines else ""

    def cell(self) -> None:
        """Begin a cell of a row."""
        if self._line:
            self._line.append(" | ")
            self._needs_space = False

    def break_line(self) -> None:
        """A forced line break; on an empty line it is an empty line."""
        if self._line:
            self.end_line()
        else:
            self._gap = 1

    def end_line(self) -> None:
        self._needs_space = False
        text = "".join(self._line).rstrip(" |") if self._line else ""
        self._line = []
        if text and not text.isspace():
            if self._gap and self.lines:
                self.lines.append(self._quote)
            self._gap = 0
            self.lines.append(self._prefix() + text)

    def _prefix(self) -> str:
        prefix = self._indent
        if self._marker:
            prefix = prefix[: max(len(prefix) - len(self._marker), 0)] + self._marker
            self._marker = ""
        return prefix

    def blank_line(self) -> None:
        """The next text is a new paragraph."""
        self.end_line()
        self._gap = 1

    def rule(self) -> None:
        self.end_line()
        self.write(_RULE)
        self.end_line()

    def item(self, marker: str) -> None:
        """Begin a list item: the marker stands before its first line, the others are indented."""
        self.indent(" " * len(marker))
        self._marker = marker

    def indent(self, prefix: str) -> None:
        self.end_line()
        self._prefixes.append(prefix)
        self._set_indent()

    def outdent(self) -> None:
        self.end_line()
        self._marker = ""
        self._prefixes.pop()
        self._set_indent()

    def _set_indent(self) -> None:
        shown = self._prefixes[:_DEEPEST]
        self._indent = "".join(shown)
        self._quote = "".join(prefix for prefix in shown if prefix == QUOTE).rstrip()

    def text(self) -> str:
        self.end_line()
        while self.lines and self.lines[-1].strip() in ("", _RULE):
            self.lines.pop()
        return "\n".join(self.lines).strip("\n")
