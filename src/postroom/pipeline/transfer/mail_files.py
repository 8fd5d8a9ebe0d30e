"""Files and folders with mail: mbox, Maildir and .eml, compressed or not."""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from postroom.errors import InvalidInput
from postroom.model.inbox import (
    EVERY_MAILBOX,
    INBOX,
    STANDARD_MAILBOXES,
    TRASH,
    WELL_KNOWN_MAILBOXES,
)
from postroom.model.message import FLAGS
from postroom.pipeline.transfer.mbox import Quoting, split_mbox

_LETTERS = {"D": "draft", "F": "flagged", "R": "answered", "S": "seen"}
_TRASHED = "T"
_INFO = re.compile(r"[:!;]2,([A-Za-z]*)$")
_STANDARD = (
    {name.lower(): name for name in STANDARD_MAILBOXES}
    | WELL_KNOWN_MAILBOXES
    | {"outbox": "Drafts"}  # no installation sends the mail of another one
)


def flags_in(filename: str) -> tuple[str, ...]:
    """The flags that a file name carries, such as `…:2,FS`."""
    letters = _letters(filename)
    found = {flag for letter, flag in _LETTERS.items() if letter in letters}
    return tuple(flag for flag in FLAGS if flag in found)


def is_trashed(filename: str) -> bool:
    """Whether a file name carries the flag T."""
    return _TRASHED in _letters(filename)


def _letters(filename: str) -> str:
    match = _INFO.search(filename)
    return match[1] if match else ""


def info_for(flags: Sequence[str]) -> str:
    """The suffix of a file name in `cur` for these flags."""
    letters = "".join(letter for letter, flag in _LETTERS.items() if flag in flags)
    return f":2,{letters}"


def mailbox_in(folders: Sequence[str]) -> str:
    """The mailbox of a folder below a Maildir.

    `.Work.Clients` (Maildir++) and `Work/Clients` are both Work/Clients.
    """
    parts = [
        _decode(part)
        for folder in folders
        for part in (folder[1:].split(".") if folder.startswith(".") else [folder])
    ]
    name = "/".join(part for part in parts if part)
    return _STANDARD.get(name.lower(), name)


def folder_for(mailbox: str) -> str:
    """The folder of a mailbox, in the Maildir++ spelling; `mailbox_in` reads it back."""
    parts = mailbox.split("/")
    return "." + ".".join(_encode(part) for part in (parts if all(parts) else [mailbox]))


def _decode(name: str) -> str:
    """Decode modified UTF-7 (RFC 3501 §5.1.3) of Maildir++; other names are left unchanged."""

    def unshift(match: re.Match[str]) -> str:
        text = match[1].replace(",", "/")
        data = b64decode(text + "=" * (-len(text) % 4), validate=True)
        return data.decode("utf-16-be") if text else "&"

    try:
        return re.sub(r"&([^-]*)-", unshift, name)
    except (NotBase64, UnicodeDecodeError):
        return name


def _encode(name: str) -> str:
    """Encode modified UTF-7; dots and slashes too, since they are separators."""

    def shift(match: re.Match[str]) -> str:
        text = b64encode(match[0].encode("utf-16-be")).rstrip(b"=").decode()
        return "&-" if match[0] == "&" else "&" + text.replace("/", ",") + "-"

    return re.sub(r"&|[./]+|[^ -~]+", shift, name)


@contextmanager
def opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file on disk and its content, decompressed if its name ends in .xz or .gz.

    Raises:
        OSError: it cannot be read, or is damaged; also in the middle of reading.
    """
    import lzma
    import zlib

    with path.open("rb") as disk:
        if path.suffix not in (".xz", ".gz"):
            yield disk, disk
            return
        try:
            with _compressed_file(path.suffix, disk, "rb") as content:
                yield disk, content
        except (EOFError, lzma.LZMAError, zlib.error) as error:
            raise OSError(f"the {path.suffix} file is damaged: {error}") from error


@contextmanager
def compressing(suffix: str, disk: IO[bytes]) -> Iterator[IO[bytes]]:
    """A file to write to, compressed if the suffix says so."""
    if suffix not in (".xz", ".gz"):
        yield disk
        return
    with _compressed_file(suffix, disk, "wb") as content:
        yield content


def _compressed_file(suffix: str, disk: IO[bytes], mode: str) -> Any:
    if suffix == ".xz":
        import lzma

        return lzma.open(disk, mode)
    import gzip

    return gzip.open(disk, mode)


Kind = Literal["mbox", "maildir", "eml"]
_CHUNK_BYTES = 1 << 18
_MAIL_FOLDERS = ("cur", "new")


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


@dataclass(slots=True)
class Source:
    """A file or a folder with mail. `done_bytes` moves towards `total_bytes` as it is read."""

    path: Path
    kind: Kind
    mailbox: str
    most_bytes: int
    quoting: Quoting = "mboxrd"
    total_bytes: int = 0
    done_bytes: int = 0

    def __iter__(self) -> Iterator[SourceMail | Unreadable]:
        if self.kind == "mbox":
            return self._mbox()
        if self.kind == "maildir":
            return self._maildir()
        return (self._file(path, self.mailbox, ()) for path in _mail_files(self.path))

    def _mbox(self) -> Iterator[SourceMail | Unreadable]:
        number = 0
        try:
            with opened(self.path) as (disk, file):
                chunks = self._chunks(disk, file)
                entries = split_mbox(chunks, most_bytes=self.most_bytes, quoting=self.quoting)
                for number, entry in enumerate(entries, start=1):
                    place = f"{self.path}: mail {number} at byte {entry.offset}"
                    problem = f"{entry.size} bytes that are not a mail, or too large"
                    if entry.raw is None:
                        yield Unreadable(place, problem)
                    else:
                        yield SourceMail(place, entry.raw, self.mailbox)
        except OSError as error:
            yield Unreadable(f"{self.path}: after mail {number}", _reason(error))

    def _chunks(self, disk: IO[bytes], file: IO[bytes]) -> Iterator[bytes]:
        for chunk in iter(partial(file.read, _CHUNK_BYTES), b""):
            self.done_bytes = disk.tell()
            yield chunk

    def _maildir(self) -> Iterator[SourceMail | Unreadable]:
        for path in _maildir_files(self.path):
            mailbox = mailbox_in(path.parent.parent.relative_to(self.path).parts)
            mailbox = mailbox if is_mailbox_name(mailbox) else self.mailbox
            place = TRASH if is_trashed(path.name) else mailbox
            yield self._file(path, place, flags_in(path.name))

    def _file(self, path: Path, mailbox: str, flags: tuple[str, ...]) -> SourceMail | Unreadable:
        try:
            with path.open("rb") as file:
                raw = file.read(self.most_bytes + 1)
                self.done_bytes += os.fstat(file.fileno()).st_size
        except OSError as error:
            return Unreadable(str(path), _reason(error))
        return SourceMail(str(path), raw, mailbox, flags)


def open_source(
    path: Path, *, kind: Kind | None, mailbox: str, most_bytes: int, quoting: Quoting = "mboxrd"
) -> Source:
    """Detect the format of a path. Raises InvalidInput if it holds no mail."""
    if not is_mailbox_name(mailbox):
        raise InvalidInput("mailbox: give a name of 1 to 256 printable characters other than *")
    try:
        kind = kind or _kind_of(path)
        source = Source(path, kind, mailbox, most_bytes, quoting)
        source.total_bytes = _size_of(source)
    except OSError as error:
        raise InvalidInput(f"{path}: {_reason(error)}") from None
    return source


def _kind_of(path: Path) -> Kind:
    if path.is_dir():
        if any((path / name).is_dir() for name in _MAIL_FOLDERS):
            return "maildir"
        if any(_mail_files(path)):
            return "eml"
        raise InvalidInput(
            f"{path}: neither a Maildir nor a folder with .eml files; "
            "to import other files, name each of them"
        )
    with opened(path) as (_, file):
        is_mbox = file.read(5) == b"From "
    return "mbox" if is_mbox or path.suffix == ".mbox" else "eml"


def _size_of(source: Source) -> int:
    if source.path.is_file():
        return source.path.stat().st_size
    if source.kind == "mbox":
        raise InvalidInput(f"{source.path}: a folder, not an mbox")
    files = _mail_files if source.kind == "eml" else _maildir_files
    return sum(path.stat().st_size for path in files(source.path))


def _maildir_files(path: Path) -> Iterator[Path]:
    """The files of a Maildir and of those inside it; links to folders are not followed."""
    for folder in (path / name for name in _MAIL_FOLDERS):
        if folder.is_dir():
            yield from sorted(file for file in folder.iterdir() if file.is_file())
    for child in sorted(path.iterdir()):
        if child.is_dir() and not child.is_symlink() and child.name not in (*_MAIL_FOLDERS, "tmp"):
            yield from _maildir_files(child)


def _mail_files(path: Path) -> Iterator[Path]:
    """The file itself, or all .eml files below a folder by name."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if name.lower().endswith(".eml"):
                yield Path(folder, name)


def is_mailbox_name(name: str) -> bool:
    """Whether a mailbox can have this name."""
    return 1 <= len(name) <= 256 and name.isprintable() and name != EVERY_MAILBOX


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
