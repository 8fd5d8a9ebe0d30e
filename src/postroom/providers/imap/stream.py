"""Splits the bytes of a connection into responses; DEFLATE compression."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from postroom.providers.imap.errors import InvalidResponse

_UNPACKED_BYTES = 256 * 1024


class Compression:
    """Compresses and decompresses a stream (RFC 4978)."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(wbits=-15)
        self._unpacker = zlib.decompressobj(-15)

    def pack(self, data: bytes) -> bytes:
        return self._packer.compress(data) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def unpack(self, data: bytes) -> bytes:
        """Decompress the next bytes, or with b"" the rest. Raises InvalidResponse."""
        rest = self._unpacker.unconsumed_tail
        try:
            return self._unpacker.decompress(rest + data, _UNPACKED_BYTES)
        except zlib.error as error:
            raise InvalidResponse("the compressed data is invalid") from error


LINE_BYTES = 4 * 1024 * 1024
"""The longest line: half a million UIDs in a SEARCH response."""

_LITERAL = re.compile(rb"~?\{(\d{1,20})\+?\}$")
# The text of a status may end in what looks like a literal.
_STATUS = re.compile(
    rb"\+|\* (?:OK|NO|BAD|BYE|PREAUTH)(?: |$)|[^*+ ]\S* (?:OK|NO|BAD)(?: |$)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One response: its line, in which NUL, a number and NUL replace each literal."""

    line: bytes
    literals: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Framer:
    """Splits a stream into frames; `literal_bytes` limits the literals of one frame."""

    literal_bytes: int = 64 * 1024
    _buffer: bytearray = field(default_factory=bytearray)
    _searched: int = 0
    _line: bytes = b""
    _literals: list[bytes] = field(default_factory=list)
    _awaited: int | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes and yield the frames that are complete. Raises InvalidResponse."""
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def take_rest(self) -> bytes:
        """The bytes after the last frame, before the stream changes to TLS or compression."""
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
                raise InvalidResponse(f"a response is longer than {LINE_BYTES} bytes")
            literal = _LITERAL.search(line, max(0, len(line) - 24))
            if literal is None or (not self._literals and _STATUS.match(self._line)):
                return self._finish()
            self._expect(literal)

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            if self._searched > LINE_BYTES:
                raise InvalidResponse(f"a line is longer than {LINE_BYTES} bytes")
            return None
        line = bytes(memoryview(self._buffer)[:end]).rstrip(b"\r")
        del self._buffer[: end + 1]
        self._searched = 0
        if b"\0" in line:
            raise InvalidResponse("a line contains NUL")
        return line

    def _expect(self, literal: re.Match[bytes]) -> None:
        size = int(literal[1])
        room = self.literal_bytes - sum(map(len, self._literals))
        if size > room:
            raise InvalidResponse(f"a literal of {size} bytes where at most {room} were requested")
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
