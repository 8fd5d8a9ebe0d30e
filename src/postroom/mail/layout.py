"""Putting words on lines: paragraphs, lists, rows and quotes as plain text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SPACES = re.compile(r"[ \t\n\r\f]+")


@dataclass(slots=True)
class Page:
    """Text under construction. Quotes and indents are prefixes of the lines they hold."""

    lines: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    _line: list[str] = field(default_factory=list)
    _gap: int = 0
    _needs_space: bool = False
    _marker: str = ""

    @property
    def line_is_empty(self) -> bool:
        return not self._line

    def write(self, text: str) -> None:
        """Running text: white space collapses."""
        words = _SPACES.sub(" ", text)
        if words[:1] == " ":
            self._needs_space = True
            words = words[1:]
        if not words:
            return
        if words[-1] == " ":
            self._put(words[:-1])
            self._needs_space = True
        else:
            self._put(words)

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

    def mark(self, marker: str) -> None:
        """Begin a list item: the marker stands before its first line."""
        self.end_line()
        self._marker = marker

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
            self._gap = min(self._gap + 1, 2)

    def end_line(self) -> None:
        self._needs_space = False
        text = "".join(self._line).rstrip(" |") if self._line else ""
        self._line = []
        if text.strip():
            self._flush_gap()
            self.lines.append(self._prefix() + text)

    def _prefix(self) -> str:
        prefix = "".join(self.prefixes)
        if self._marker:
            prefix = prefix[: -len(self._marker)] + self._marker if self.prefixes else self._marker
            self._marker = ""
        return prefix

    def _flush_gap(self) -> None:
        if self._gap and self.lines:
            quote = "".join(p for p in self.prefixes if p == "> ").rstrip()
            if self.lines[-1].strip() not in ("", quote):
                self.lines.append(quote)
        self._gap = 0

    def blank_line(self) -> None:
        """The next text is a new paragraph."""
        self.end_line()
        self._gap = max(self._gap, 1)

    def rule(self) -> None:
        self.end_line()
        self.write("-" * 10)
        self.end_line()

    def indent(self, prefix: str) -> None:
        self.end_line()
        self.prefixes.append(prefix)

    def outdent(self) -> None:
        self.end_line()
        self._marker = ""
        self.prefixes.pop()

    def text(self) -> str:
        self.end_line()
        return "\n".join(self.lines).strip("\n")
