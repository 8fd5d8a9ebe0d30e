"""Files that hold mail: one mail, mbox (read and written), and archives (tar and zip).

Members of archives are read in order and never unpacked to disk. Their names are shown and nothing
else, so they need not be safe. tar is read here and not by `tarfile`, which reads extended headers
of any size into memory.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Literal

from postroom.model.inbox import INBOX


@dataclass(frozen=True, slots=True)
class SourceMail:
    """A mail in a file, with the mailbox and flags that its path gives."""

    place: str
    raw: bytes
    mailbox: str = INBOX
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A path without readable mail, and the problem."""

    place: str
    problem: str


NO_HEADER = "not a mail: it has no From, Date, Subject or other mail header"
_HEAD_BYTES = 65_536
_FIRST_LINE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:>?From [^\n]*\n)?[!-9;-~]{1,200}[ \t]*:")
_KNOWN = re.compile(
    rb"^(?:\xef\xbb\xbf)?(?:from|sender|reply-to|to|cc|bcc|subject|date|message-id|in-reply-to"
    rb"|references|received|return-path|delivered-to|mime-version|resent-[a-z-]+)[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)


def has_mail_header(raw: bytes) -> bool:
    """Whether it begins with header fields, one of which is of RFC 5322 or of a mail server."""
    head = raw[:_HEAD_BYTES].lstrip()
    if b"\r" in head:
        head = head.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    fields = head.partition(b"\n\n")[0]
    return bool(_FIRST_LINE.match(fields) and _KNOWN.search(fields))


_BLOCK = 512
_CHUNK_BYTES = 1 << 18
_NAME_BYTES = 4096
_REGULAR, _FOLDER, _LONG_NAME, _PAX = b"07\0", b"5", b"L", b"x"
_SKIPPED = b"Kg"
"""Long names of links, and what applies to the whole archive."""

_ENCRYPTED = 0x1 | 0x40
_IS_ENCRYPTED = "is encrypted; unpack the archive with its password, and import the files"


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive, to be read before the next one is asked for."""

    name: str
    content: IO[bytes]


class Part:
    """A part of a stream as a file to read. What is left of it must be skipped."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream, self.left = stream, size

    def read(self, size: int = -1) -> bytes:
        """Up to *size* bytes. Raises OSError if the stream ends before the part does."""
        wanted = self.left if size < 0 else min(size, self.left)
        found = self._stream.read(wanted) if wanted else b""
        if wanted and not found:
            raise OSError("the archive is truncated")
        self.left -= len(found)
        return found

    def skip(self) -> None:
        while self.read(_CHUNK_BYTES):
            pass


def tar_members(stream: IO[bytes]) -> Iterator[Member | Unreadable]:
    """The files in a tar archive (POSIX.1-2001, ustar and GNU). Raises OSError if it is damaged."""
    long_name = ""
    while header := _read_block(stream):
        if not header.strip(b"\0"):
            return
        size, kind = _size(header), header[156:157]
        part = Part(stream, size)
        padding = -size % _BLOCK
        name = long_name or _text(header[:100])
        long_name = ""
        if kind in (_LONG_NAME, _PAX):
            text = part.read(min(size, _NAME_BYTES))
            long_name = _text(text) if kind == _LONG_NAME else _pax_path(text)
        elif kind in _REGULAR:
            yield Member(name, part)  # type: ignore[arg-type]  # it is read and not closed
        elif kind != _FOLDER and kind not in _SKIPPED:
            yield Unreadable(name, "not a regular file")
        part.skip()
        Part(stream, padding).skip()


def _read_block(stream: IO[bytes]) -> bytes:
    block = stream.read(_BLOCK)
    if block and len(block) < _BLOCK:
        raise OSError("the archive is truncated")
    return block


def is_tar_header(block: bytes) -> bool:
    """Whether a block is the header of a member: its checksum is right."""
    if len(block) < _BLOCK or not block[0]:
        return False
    try:
        written = int(block[148:156].strip(b" \0") or b"x", 8)
    except ValueError:
        return False
    return written == sum(block[:148]) + 8 * 32 + sum(block[156:_BLOCK])


def _size(header: bytes) -> int:
    field = header[124:136]
    if not is_tar_header(header):
        raise OSError("the archive is damaged")
    if field[0] & 0x80:  # GNU: a binary number
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        raise OSError("the archive is damaged") from None


def _pax_path(records: bytes) -> str:
    """The value of `path` in the records of an extended header; empty if there is none."""
    _, found, rest = records.partition(b" path=")
    return _text(rest.partition(b"\n")[0]) if found else ""


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode("utf-8", "replace")


def zip_members(path: Path) -> Iterator[Member | Unreadable]:
    """The files in a zip archive. Raises OSError if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.flag_bits & _ENCRYPTED:
                    yield Unreadable(info.filename, _IS_ENCRYPTED)
                elif not info.is_dir():
                    yield from _zip_member(archive, info)
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise OSError(f"the archive is damaged: {error}") from error


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[Member | Unreadable]:
    try:
        content = archive.open(info)
    except (NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        yield Unreadable(info.filename, str(error) or "cannot be read")
        return
    with content:
        yield Member(info.filename, content)


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
    chunks: Iterable[bytes], *, max_bytes: int, quoting: Quoting = "mboxrd"
) -> Iterator[MboxEntry]:
    """Yield each mail of an mbox, with one mail and one chunk in memory.

    Text before the first `From ` line is an entry too, unless it is white space.
    """
    splitter = _Splitter(max_bytes, quoting)
    for chunk in chunks:
        yield from splitter.feed(chunk)
    yield from splitter.finish()


@dataclass(slots=True)
class _Splitter:
    """The unread part of an mbox; two leading newlines make the first line like any other."""

    max_bytes: int
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
        if self.dropped + len(self.buffer) - self.start <= self.max_bytes * 7 // 6 + 8:
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
