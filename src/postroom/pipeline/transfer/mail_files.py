"""Files and folders with mail: mbox, Maildir, .eml and archives, compressed or not."""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal

from postroom.errors import InvalidInput
from postroom.model.inbox import (
    DRAFTS,
    EVERY_MAILBOX,
    OUTBOX,
    TRASH,
    standard_mailbox,
)
from postroom.model.mail.message import FLAGS
from postroom.pipeline.transfer.archives import (
    Quoting,
    SourceMail,
    Unreadable,
    is_tar_header,
    split_mbox,
    tar_members,
    zip_members,
)

COMPRESSED = (".xz", ".gz", ".txz", ".tgz")
_ZIP = b"PK\x03\x04"
_MIN_EXPANDED, _MAX_RATIO = 100 * 1024 * 1024, 1_000
"""The size that any compressed file may expand to, and how often its own size besides."""

_LETTERS = {"D": "draft", "F": "flagged", "R": "answered", "S": "seen"}
_TRASHED = "T"
_INFO = re.compile(r"[:!;]2,([A-Za-z]*)$")


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
    standard = standard_mailbox(name) or name
    return DRAFTS if standard == OUTBOX else standard  # none sends the mail of another installation


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
    """The file on disk and its content, decompressed if its name ends in .xz, .gz, .txz or .tgz.

    Raises:
        OSError: it cannot be read, is damaged, or expands to what no mail does; also in the middle
            of reading.
    """
    with path.open("rb") as disk:
        if path.suffix not in COMPRESSED:
            yield disk, disk
            return
        budget = Budget.of(disk)
        with archive_errors(), _compressed_file(path.suffix, disk, "rb") as content:
            yield disk, Bounded(content, budget)  # type: ignore[misc]  # it is only read


class Expanded(OSError):
    """A compressed file is far longer than mail is."""


@dataclass(slots=True)
class Budget:
    """How many bytes a compressed file may still expand to."""

    left: int

    @classmethod
    def of(cls, disk: IO[bytes]) -> Budget:
        return cls(_MIN_EXPANDED + _MAX_RATIO * os.fstat(disk.fileno()).st_size)


@dataclass(frozen=True, slots=True)
class Bounded:
    """A file to read within a budget."""

    content: IO[bytes]
    budget: Budget

    def read(self, size: int) -> bytes:
        """Up to *size* bytes. Raises Expanded."""
        with archive_errors():
            found = self.content.read(size)
        self.budget.left -= len(found)
        if self.budget.left < 0:
            raise Expanded(
                "it expands to far more than mail normally does; if it is mail, unpack it first"
            )
        return found


@contextmanager
def archive_errors() -> Iterator[None]:
    """Turn the errors of decompression into OSError."""
    import lzma
    import zipfile
    import zlib

    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as error:
        raise OSError(f"the compressed data is damaged: {error}") from error


@contextmanager
def compressing(suffix: str, disk: IO[bytes]) -> Iterator[IO[bytes]]:
    """A file to write to, compressed if the suffix says so."""
    if suffix not in COMPRESSED:
        yield disk
        return
    with _compressed_file(suffix, disk, "wb") as content:
        yield content


def _compressed_file(suffix: str, disk: IO[bytes], mode: str) -> Any:
    if suffix in (".xz", ".txz"):
        import lzma

        return lzma.open(disk, mode)
    import gzip

    return gzip.open(disk, mode)


Kind = Literal["mbox", "maildir", "eml"]
SourceKind = Kind | Literal["tar", "zip"]
_CHUNK_BYTES = 1 << 18
_MAIL_FOLDERS = ("cur", "new")


@dataclass(slots=True)
class Source:
    """A file or a folder with mail. `done_bytes` moves towards `total_bytes` as it is read."""

    path: Path
    kind: SourceKind
    mailbox: str
    max_bytes: int
    quoting: Quoting = "mboxrd"
    total_bytes: int = 0
    done_bytes: int = 0

    def __iter__(self) -> Iterator[SourceMail | Unreadable]:
        if self.kind == "mbox":
            return self._mbox()
        if self.kind == "maildir":
            return self._maildir()
        if self.kind in ("tar", "zip"):
            return self._archive()
        return (self._file(path, self.mailbox, ()) for path in _mail_files(self.path))

    def _mbox(self) -> Iterator[SourceMail | Unreadable]:
        try:
            with opened(self.path) as (disk, file):
                yield from self._entries(str(self.path), self._chunks(disk, file))
        except OSError as error:
            yield Unreadable(str(self.path), _reason(error))

    def _entries(self, place: str, chunks: Iterator[bytes]) -> Iterator[SourceMail | Unreadable]:
        """The mails of an mbox; what cannot be read ends it."""
        number = 0
        entries = split_mbox(chunks, max_bytes=self.max_bytes, quoting=self.quoting)
        try:
            for number, entry in enumerate(entries, start=1):
                where = f"{place}: mail {number} at byte {entry.offset}"
                problem = f"{entry.size} bytes that are not a mail, or are too large"
                if entry.raw is None:
                    yield Unreadable(where, problem)
                else:
                    yield SourceMail(where, entry.raw, self.mailbox)
        except OSError as error:
            yield Unreadable(f"{place}: after mail {number}", _reason(error))

    def _archive(self) -> Iterator[SourceMail | Unreadable]:
        """The mails in a tar or zip archive: each is an mbox or a single mail."""
        try:
            with opened(self.path) as (disk, file):
                members = tar_members(file) if self.kind == "tar" else zip_members(self.path)
                budget = Budget.of(disk)
                for member in members:
                    self.done_bytes = disk.tell()
                    if isinstance(member, Unreadable):
                        yield Unreadable(f"{self.path}: {member.place}", member.problem)
                    else:
                        content = Bounded(member.content, budget)
                        yield from self._member(f"{self.path}: {member.name}", member.name, content)
        except OSError as error:
            yield Unreadable(str(self.path), _reason(error))

    def _member(self, place: str, name: str, content: Bounded) -> Iterator[SourceMail | Unreadable]:
        try:
            raw = _read_up_to(content, self.max_bytes + 1)
            if raw.startswith(b"From "):
                rest = iter(partial(content.read, _CHUNK_BYTES), b"")
                yield from self._entries(place, chain([raw], rest))
            else:
                yield SourceMail(place, raw, self.mailbox, flags_in(name))
        except Expanded:
            raise
        except OSError as error:
            yield Unreadable(place, _reason(error))

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
            with opened(path) as (disk, file):
                raw = _read_up_to(file, self.max_bytes + 1)
                self.done_bytes += os.fstat(disk.fileno()).st_size
        except OSError as error:
            return Unreadable(str(path), _reason(error))
        return SourceMail(str(path), raw, mailbox, flags)


def open_source(
    path: Path, *, kind: Kind | None, mailbox: str, max_bytes: int, quoting: Quoting = "mboxrd"
) -> Source:
    """Detect the format of a path. Raises InvalidInput if it holds no mail."""
    if not is_mailbox_name(mailbox):
        raise InvalidInput("mailbox: give a name of 1 to 256 printable characters other than *")
    try:
        source = Source(path, kind or _kind_of(path), mailbox, max_bytes, quoting)
        source.total_bytes = _size_of(source)
    except OSError as error:
        raise InvalidInput(f"{path}: {_reason(error)}") from None
    return source


def _kind_of(path: Path) -> SourceKind:
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
        start = file.read(5)
        with suppress(OSError):  # later damage is reported when it is read
            start += _read_up_to(file, 507)
    if start.startswith(_ZIP) and path.suffix not in COMPRESSED:
        return "zip"
    if is_tar_header(start):
        return "tar"
    return "mbox" if start.startswith(b"From ") or path.suffix == ".mbox" else "eml"


def _read_up_to(file: IO[bytes] | Bounded, size: int) -> bytes:
    """The first bytes; a part of an archive returns what it has."""
    found = b""
    while len(found) < size and (more := file.read(size - len(found))):
        found += more
    return found


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
