"""Files in mbox format: read and written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Quoting = Literal["mboxrd", "mboxo"]
"""How lines are quoted; mboxo is ambiguous for lines that began with `>From`."""

_LONGEST_FROM_LINE = 1_000
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DATED = re.compile(
    (
        rf"From .*({'|'.join(_DAYS)}),? +({'|'.join(_MONTHS)}) +\d\d? +"
        r"\d\d:\d\d(:\d\d)?\b.*\b\d{4}\b"
    ).encode()
)
_HEADER = re.compile(rb"[!-9;-~]+[ \t]*:")
_LOOKS_LIKE_FROM = re.compile(rb"^(>*From )", re.MULTILINE)
_QUOTED = {
    "mboxrd": re.compile(rb"^>(>*From )", re.MULTILINE),
    "mboxo": re.compile(rb"^>(From )", re.MULTILINE),
}


@dataclass(frozen=True, slots=True)
class MboxEntry:
    """One mail of an mbox, with the offset of its `From ` line; `raw` is None if too large."""

    offset: int
    size: int
    raw: bytes | None


def split_mbox(
    chunks: Iterable[bytes], *, most_bytes: int, quoting: Quoting = "mboxrd"
) -> Iterator[MboxEntry]:
    """Yield each mail of an mbox, with one mail and one chunk in memory.

    Text before the first `From ` line is an entry too, unless it is white space.
    """
    splitter = _Splitter(most_bytes, quoting)
    for chunk in chunks:
        yield from splitter.feed(chunk)
    yield from splitter.finish()


@dataclass(slots=True)
class _Splitter:
    """The unread part of an mbox; two leading newlines make the first line like any other."""

    most_bytes: int
    quoting: Quoting
    buffer: bytearray = field(default_factory=lambda: bytearray(b"\n\n"))
    base: int = -2
    start: int = 2
    scanned: int = 0
    dropped: int = 0
    offset: int | None = None
    newline: bytes = b"\n"

    def feed(self, chunk: bytes) -> Iterator[MboxEntry]:
        self.buffer += chunk
        yield from self._entries(at_end=False)
        self._drop_oversized()

    def finish(self) -> Iterator[MboxEntry]:
        yield from self._entries(at_end=True)
        ending = self.buffer[max(self.start - 1, len(self.buffer) - 3) :]
        has_separator = ending.endswith(b"\n" + self.newline)
        yield from self._entry(len(self.buffer), takes_newline=has_separator)

    def _entries(self, *, at_end: bool) -> Iterator[MboxEntry]:
        while (found := self.buffer.find(b"\nFrom ", self.scanned)) >= 0:
            verdict = self._is_separator(found + 1, at_end=at_end)
            if verdict is None:
                self.scanned = found
                return
            if verdict:
                yield from self._entry(found + 1, takes_newline=True)
                self._open(found + 1)
            else:
                self.scanned = found + 1
        self.scanned = max(self.scanned, len(self.buffer) - len(b"\nFrom"))

    def _is_separator(self, at: int, *, at_end: bool) -> bool | None:
        """A `From ` line with a date, or one between an empty line and a header.

        None: more has to be read to decide.
        """
        end = self.buffer.find(b"\n", at, at + _LONGEST_FROM_LINE)
        if end < 0:
            if len(self.buffer) - at >= _LONGEST_FROM_LINE:
                return False
            if not at_end:
                return None
            end = len(self.buffer)
        if _DATED.match(self.buffer, at, end):
            return True
        if not self.buffer[max(at - 3, 0) : at].endswith((b"\n\n", b"\n\r\n")):
            return False
        if len(self.buffer) - end < _LONGEST_FROM_LINE and not at_end:
            return None
        return _HEADER.match(self.buffer, end + 1, end + _LONGEST_FROM_LINE) is not None

    def _open(self, at: int) -> None:
        """Start the entry of this `From ` line."""
        end = self.buffer.find(b"\n", at)
        end = len(self.buffer) if end < 0 else end
        self.newline = b"\r\n" if self.buffer[end - 1 : end] == b"\r" else b"\n"
        self.offset = self.base + at
        del self.buffer[:end]
        self.base += end
        self.start, self.scanned, self.dropped = 1, 0, 0

    def _entry(self, end: int, *, takes_newline: bool) -> Iterator[MboxEntry]:
        content = bytes(self.buffer[self.start : end])
        size = len(content) + self.dropped
        if self.offset is None:
            if content.strip() or self.dropped:
                yield MboxEntry(0, size, None)
            return
        if takes_newline:
            content = content.removesuffix(self.newline if content.endswith(b"\r\n") else b"\n")
        raw = None if self.dropped else unquote(content, self.quoting)
        yield MboxEntry(self.offset, size, raw)

    def _drop_oversized(self) -> None:
        """Drop an entry over the limit; quoting adds at most one byte to six."""
        if self.dropped + len(self.buffer) - self.start <= self.most_bytes * 7 // 6 + 8:
            return
        keep = max(self.scanned - 3, self.start)
        del self.buffer[self.start : keep]
        self.dropped += keep - self.start
        self.base += keep - self.start
        self.scanned -= keep - self.start


def unquote(content: bytes, quoting: Quoting = "mboxrd") -> bytes:
    """Remove the quoting of `From ` lines."""
    return _QUOTED[quoting].sub(rb"\1", content) if b">From " in content else content


def write_entry(raw: bytes, sender: str, date: datetime, *, is_last: bool) -> bytes:
    """A mail as an entry of an mboxrd file."""
    name = "".join(c for c in sender[:200] if c.isprintable() and not c.isspace())
    # The time is in UTC, as C's asctime writes it.
    day, month = _DAYS[date.weekday()], _MONTHS[date.month - 1]
    moment = f"{day} {month} {date.day:2} {date:%H:%M:%S} {date.year:04}"
    quoted = _LOOKS_LIKE_FROM.sub(rb">\1", raw) if b"From " in raw else raw
    newline = b"\n" if raw.endswith(b"\n") or not is_last else b""
    return f"From {name or 'MAILER-DAEMON'} {moment}\n".encode() + quoted + newline
