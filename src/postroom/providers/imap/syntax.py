"""The syntax of IMAP: responses in a stream, values, arguments, mailbox names."""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import TypeAlias

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
    _awaited_bytes: int | None = None

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
            if self._awaited_bytes is not None and not self._take_literal(self._awaited_bytes):
                return None
            line = self._take_line()
            if line is None:
                return None
            self._line += line
            if len(self._line) > LINE_BYTES:
                raise InvalidResponse(f"a response is longer than {LINE_BYTES} bytes")
            literal = _LITERAL.search(line, max(0, len(line) - 24))
            if literal is None or (not self._literals and _STATUS.match(self._line)):
                frame = Frame(self._line, tuple(self._literals))
                self._line, self._literals = b"", []
                return frame
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
        left = self.literal_bytes - sum(map(len, self._literals))
        if size > left:
            raise InvalidResponse(f"a literal of {size} bytes where at most {left} were requested")
        self._line = self._line[: len(self._line) - len(literal[0])]
        self._line += b"\0%d\0" % len(self._literals)
        self._awaited_bytes = size

    def _take_literal(self, size: int) -> bool:
        if len(self._buffer) < size:
            return False
        self._literals.append(bytes(memoryview(self._buffer)[:size]))
        del self._buffer[:size]
        self._awaited_bytes = None
        return True


Value: TypeAlias = "int | bytes | list[Value] | None"

MAX_VALUES = 50_000
MAX_DEPTH = 100
_TOKEN = re.compile(
    rb' *+(?:(?P<open>\()|(?P<close>\))|"(?P<quoted>(?:[^"\\]|\\.)*+)"|\0(?P<literal>\d++)\0'
    rb'|(?P<atom>(?:BODY\[[^\]]*+\](?:<\d++>)?+|[^ ()"\0]++)))',
    re.IGNORECASE,
)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


def parse_values(frame: Frame, start: int) -> list[Value]:
    """Parse the values of a frame from an offset in its line. Raises InvalidResponse."""
    line, end = frame.line, len(frame.line.rstrip(b" "))
    values: list[Value] = []
    outer: list[list[Value]] = []
    at = start
    for _ in range(MAX_VALUES):
        if at >= end:
            if outer:
                raise InvalidResponse("a list in a response has no end")
            return values
        token = _TOKEN.match(line, at)
        if token is None:
            raise InvalidResponse("a response has invalid values")
        at = token.end()
        kind = token.lastgroup
        if kind == "open":
            outer.append(values)
            values = []
            if len(outer) > MAX_DEPTH:
                raise InvalidResponse(f"lists in a response are nested over {MAX_DEPTH} levels")
        elif kind == "close":
            if not outer:
                raise InvalidResponse("a list in a response has no start")
            outer[-1].append(values)
            values = outer.pop()
        else:
            values.append(_token_value(token, frame))
    raise InvalidResponse(f"a response has more than {MAX_VALUES} values")


def _token_value(token: re.Match[bytes], frame: Frame) -> Value:
    if (quoted := token["quoted"]) is not None:
        return _ESCAPED.sub(rb"\1", quoted) if b"\\" in quoted else quoted
    if (number := token["literal"]) is not None:
        return frame.literals[int(number)]
    atom = token["atom"]
    if atom.isdigit() and len(atom) <= 20:
        return int(atom)
    return None if atom.upper() == b"NIL" else atom


_PLAIN_NAME = re.compile(rb"[A-Za-z0-9_./&+,=@$#!:;<>?^|~-]+")
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]")
_FLAG = re.compile(r"""\\?[A-Za-z0-9_.$+/:;<>=@!#&'|~^?,`\[}-]{1,100}""", re.ASCII)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SET_BYTES = 2_000
_MINUS_BYTES = 4_096
_LINE_END = re.compile(rb"[\r\n\0]")


@dataclass(frozen=True, slots=True)
class Literal:
    """An argument that is sent as a literal.

    One that `is_synchronizing` waits for the continuation of the server even if it supports other
    literals: it may refuse a large message before that is sent.
    """

    data: bytes = field(repr=False)
    is_synchronizing: bool = False


Piece: TypeAlias = bytes | Literal


def has_controls(data: bytes) -> bool:
    """Whether there are control characters, which no command can carry."""
    return _CONTROLS.search(data) is not None


def refuse_controls(data: bytes) -> bytes:
    """Return the data unless it has control characters. Raises ValueError."""
    if has_controls(data):
        raise ValueError("control characters cannot be sent to a mail server")
    return data


def quoted(data: bytes) -> bytes:
    """A quoted string of ASCII. Raises ValueError."""
    if not data.isascii():
        raise ValueError("only ASCII can be quoted")
    return b'"' + refuse_controls(data).replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def mailbox_name(name: bytes) -> Piece:
    """A mailbox name as atom, quoted string or literal.

    QUIRK: Office 365 hangs on a quoted name that could be an atom.
    """
    refuse_controls(name)
    if _PLAIN_NAME.fullmatch(name) and name.upper() != b"NIL":
        return name
    return quoted(name) if name.isascii() else Literal(name)


def search_text(text: str) -> Piece:
    """A search text as quoted string or literal."""
    data = refuse_controls(text.encode())
    return quoted(data) if data.isascii() else Literal(data)


def is_flag(text: str) -> bool:
    """Whether a text is a valid flag; some servers list flags that are not."""
    return _FLAG.fullmatch(text) is not None


def flag_list(flags: Iterable[str]) -> bytes:
    """Flags in parentheses. Raises ValueError for an invalid flag."""
    flags = list(flags)
    for flag in flags:
        if not is_flag(flag):
            raise ValueError(f"{flag!r} is not a valid flag")
    return b"(" + " ".join(flags).encode("ascii") + b")"


def search_date(day: date) -> bytes:
    """A date in the form of SEARCH, independent of the locale."""
    return f"{day.day}-{MONTHS[day.month - 1]}-{day.year:04}".encode()


def append_time(moment: datetime) -> bytes:
    """A time in the form of APPEND."""
    utc = moment.astimezone(UTC)
    month = MONTHS[utc.month - 1]
    return f'"{utc.day:2}-{month}-{utc.year:04} {utc:%H:%M:%S} +0000"'.encode()


def uid_sets(uids: Sequence[int]) -> Iterator[bytes]:
    """UIDs as sets with ranges, each short enough for a command.

    QUIRK: Stalwart refuses commands over 4,096 bytes.
    """
    chunk = b""
    for part in _ranges(sorted(set(uids))):
        if len(chunk) + len(part) >= _SET_BYTES:
            yield chunk
            chunk = b""
        chunk += b"," + part if chunk else part
    if chunk:
        yield chunk


def _ranges(uids: list[int]) -> Iterator[bytes]:
    if not uids:
        return
    start = uids[0]
    for one, following in pairwise([*uids, uids[-1] + 2]):
        if following != one + 1:
            yield b"%d" % one if start == one else b"%d:%d" % (start, one)
            start = following


def command_segments(pieces: Sequence[Piece], literals: str) -> list[bytes]:
    """The segments of a command; the server sends a continuation before each but the first."""
    segments = [b""]
    for number, piece in enumerate(pieces):
        space = b" " if number else b""
        if isinstance(piece, bytes):
            if _LINE_END.search(piece):
                raise ValueError("a command must stay one line")
            segments[-1] += space + piece
            continue
        size = len(piece.data)
        may_go = literals == "+" or (literals == "-" and size <= _MINUS_BYTES)
        if may_go and not piece.is_synchronizing:
            segments[-1] += space + b"{%d+}\r\n" % size + piece.data
        else:
            segments[-1] += space + b"{%d}\r\n" % size
            segments.append(piece.data)
    segments[-1] += b"\r\n"
    return segments


_SHIFTED = re.compile(r"[^\x20-\x7e]+")
_ENCODED = re.compile(r"&([A-Za-z0-9+,]*)-")


def encode_name(name: str) -> str:
    """A mailbox name in modified UTF-7 (RFC 3501 §5.1.3)."""

    def shift(run: re.Match[str]) -> str:
        data = b64encode(run[0].encode("utf-16-be")).decode()
        return f"&{data.rstrip('=').replace('/', ',')}-"

    return _SHIFTED.sub(shift, name.replace("&", "&-"))


def decode_name(data: bytes) -> str:
    """A mailbox name from modified UTF-7, or as it is if that is invalid; see `name_encodings`."""

    def unshift(run: re.Match[str]) -> str:
        shifted = run[1].replace(",", "/")
        plain = b64decode(shifted + "=" * (-len(shifted) % 4), validate=True)
        return plain.decode("utf-16-be") if shifted else "&"

    text = data.decode("utf-8", "replace")
    try:
        name = _ENCODED.sub(unshift, text)
    except ValueError:
        return text
    return name if encode_name(name) == text else text


def name_encodings(name: str, *, is_utf8: bool) -> list[bytes]:
    """The encodings of a mailbox name that a server may use, the right one first.

    Raises ValueError for control characters.
    """
    raw, encoded = refuse_controls(name.encode()), encode_name(name).encode()
    if is_utf8 or raw == encoded:
        return [raw]
    # QUIRK: some servers list names in plain UTF-8, or with an unencoded "&".
    return [encoded, raw]
