"""From the bytes of a connection to whole responses, each with its literals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.providers.imap.faults import Unreadable

LINE_BYTES = 4 * 1024 * 1024
"""The longest line: half a million UIDs that a server without ESEARCH lists in one."""

_LITERAL = re.compile(rb"~?\{(\d{1,20})\+?\}$")
# The text of a status is for people and may end in anything, also in what looks like a literal.
_STATUS = re.compile(
    rb"\+|\* (?:OK|NO|BAD|BYE|PREAUTH)(?: |$)|[^*+ ]\S* (?:OK|NO|BAD)(?: |$)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One response: its line, in which NUL, a number and NUL stand for a literal."""

    line: bytes
    literals: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Framer:
    """Cuts a stream into frames; `literal_bytes` is how much one frame may carry in literals."""

    literal_bytes: int = 64 * 1024
    _buffer: bytearray = field(default_factory=bytearray)
    _searched: int = 0
    _line: bytes = b""
    _literals: list[bytes] = field(default_factory=list)
    _awaited: int | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take in bytes and give out the frames they complete. Raises Unreadable."""
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def take_rest(self) -> bytes:
        """What came after the last frame; the stream goes on in another form."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        return rest

    def _next(self) -> Frame | None:
        while True:
            if self._awaited is not None and not self._take_literal(self._awaited):
                return None
            line = self._take_line()
            if line is None:
                return None
            self._line += line
            if len(self._line) > LINE_BYTES:
                raise Unreadable(f"a response is longer than {LINE_BYTES} bytes")
            literal = _LITERAL.search(line, max(0, len(line) - 24))
            if literal is None or (not self._literals and _STATUS.match(self._line)):
                return self._finish()
            self._expect(literal)

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            if self._searched > LINE_BYTES:
                raise Unreadable(f"a line is longer than {LINE_BYTES} bytes")
            return None
        line = bytes(memoryview(self._buffer)[:end]).rstrip(b"\r")
        del self._buffer[: end + 1]
        self._searched = 0
        if b"\0" in line:
            raise Unreadable("a line contains NUL")
        return line

    def _expect(self, literal: re.Match[bytes]) -> None:
        size = int(literal[1])
        room = self.literal_bytes - sum(map(len, self._literals))
        if size > room:
            raise Unreadable(f"a literal of {size} bytes where at most {room} were asked for")
        self._line = self._line[: len(self._line) - len(literal[0])]
        self._line += b"\0%d\0" % len(self._literals)
        self._awaited = size

    def _take_literal(self, size: int) -> bool:
        if len(self._buffer) < size:
            return False
        self._literals.append(bytes(memoryview(self._buffer)[:size]))
        del self._buffer[:size]
        self._awaited = None
        return True

    def _finish(self) -> Frame:
        frame = Frame(self._line, tuple(self._literals))
        self._line, self._literals = b"", []
        return frame
