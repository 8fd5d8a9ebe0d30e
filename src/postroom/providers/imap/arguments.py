"""What commands are made of. Nothing that could end a command or begin another gets through."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import TypeAlias

_PLAIN_NAME = re.compile(rb"[A-Za-z0-9_./&+,=@$#!:;<>?^|~-]+")
_CONTROLS = re.compile(rb"[\x00-\x1f\x7f]")
_FLAG = re.compile(r"""\\?[A-Za-z0-9_.$+/:;<>=@!#&'|~^?,`\[}-]{1,100}""", re.ASCII)
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SET_BYTES = 2_000
_MINUS_BYTES = 4_096
_LINE_END = re.compile(rb"[\r\n\0]")


@dataclass(frozen=True, slots=True)
class Bytes:
    """Text or a message that travels as a literal.

    `asks_first` waits for the server's consent even where it is not needed: it may refuse a large
    message before it is sent.
    """

    data: bytes = field(repr=False)
    asks_first: bool = False


Piece: TypeAlias = bytes | Bytes


def refuse_controls(data: bytes) -> bytes:
    """Pass on what has no control characters. Raises ValueError."""
    if _CONTROLS.search(data):
        raise ValueError("control characters cannot be sent to a mail server")
    return data


def quoted(data: bytes) -> bytes:
    """A quoted string of ASCII. Raises ValueError."""
    if not data.isascii():
        raise ValueError("only ASCII can be quoted")
    return b'"' + refuse_controls(data).replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def mailbox(name: bytes) -> Piece:
    """A mailbox name in the simplest form that holds it.

    QUIRK: Office 365 hangs on quotes around a name that needs none.
    """
    refuse_controls(name)
    if _PLAIN_NAME.fullmatch(name) and name.upper() != b"NIL":
        return name
    return quoted(name) if name.isascii() else Bytes(name)


def words(text: str) -> Piece:
    """Text to search for."""
    data = refuse_controls(text.encode())
    return quoted(data) if data.isascii() else Bytes(data)


def is_flag(text: str) -> bool:
    """Whether a text can be a flag; not all that servers show as flags can be sent."""
    return _FLAG.fullmatch(text) is not None


def flag_list(flags: Iterable[str]) -> bytes:
    """Flags in parentheses. Raises ValueError for what cannot be a flag."""
    flags = list(flags)
    for flag in flags:
        if not is_flag(flag):
            raise ValueError(f"{flag!r} cannot be a flag")
    return b"(" + " ".join(flags).encode("ascii") + b")"


def search_date(day: date) -> bytes:
    """A day as SEARCH wants it, whatever the locale."""
    return f"{day.day}-{MONTHS[day.month - 1]}-{day.year:04}".encode()


def append_time(moment: datetime) -> bytes:
    """A date-time as APPEND wants it."""
    utc = moment.astimezone(UTC)
    month = MONTHS[utc.month - 1]
    return f'"{utc.day:2}-{month}-{utc.year:04} {utc:%H:%M:%S} +0000"'.encode()


def uid_sets(uids: Sequence[int]) -> Iterator[bytes]:
    """UIDs as sets with ranges, each short enough for a command.

    QUIRK: Stalwart takes no command over 4,096 bytes.
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
    """A command cut where the server has to consent first; pieces are joined by spaces."""
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
        if may_go and not piece.asks_first:
            segments[-1] += space + b"{%d+}\r\n" % size + piece.data
        else:
            segments[-1] += space + b"{%d}\r\n" % size
            segments.append(piece.data)
    segments[-1] += b"\r\n"
    return segments
