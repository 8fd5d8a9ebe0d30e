"""A mail that is read from a file; archives of mail: tar and zip.

Members are read in order and never unpacked to disk. Their names are shown and nothing else, so
they need not be safe. tar is read here and not by `tarfile`, which reads extended headers of any
size into memory.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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


NO_HEADER = "not a mail: it has no From, Date, Subject or other header of one"
_HEAD_BYTES = 65_536
_FIRST_LINE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:>?From [^\n]*\n)?[!-9;-~]{1,200}[ \t]*:")
_KNOWN = re.compile(
    rb"^(?:\xef\xbb\xbf)?(?:from|sender|reply-to|to|cc|bcc|subject|date|message-id|in-reply-to"
    rb"|references|received|return-path|delivered-to|mime-version|resent-[a-z-]+)[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)


def has_mail_header(raw: bytes) -> bool:
    """Whether it begins with header fields, one of which is of RFC 5322 or of a mail server."""
    head = raw[:_HEAD_BYTES].lstrip().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
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
            raise OSError("the archive is cut off")
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
        raise OSError("the archive is cut off")
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
