"""What the audit log is sealed with: a key, and a mark outside the database of how far it goes."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from postroom.errors import Conflict

KEY_FILE, MARK_FILE = "audit.key", "audit.mark"
START = b"\x00" * 32
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Seal:
    """Chains entries with an HMAC, and marks the newest one in a file beside the database.

    Without the key nobody can write an entry that fits, so what is altered, left out or in another
    order shows. The mark shows when entries are missing at the end.
    """

    key: bytes = field(repr=False)
    path: Path | None = None

    def link(self, before: bytes, entry: bytes) -> bytes:
        """The hash of an entry that follows another."""
        return hmac.digest(self.key, b"entry" + before + entry, hashlib.sha256)

    def head(self, number: int, link: bytes) -> bytes:
        """What proves that the log ends, or ended, with this entry."""
        return hmac.digest(self.key, b"head%d:" % number + link, hashlib.sha256)

    @property
    def fingerprint(self) -> bytes:
        """What tells the key from others, and tells nothing else of it."""
        return hmac.digest(self.key, b"fingerprint", hashlib.sha256)

    def mark(self, number: int, link: bytes) -> None:
        """Write down that the log goes at least so far; never less than before."""
        if self.path is None:
            return
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            marked = _read(os.pread(handle, 1024, 0))
            if marked is None or marked[0] < number:
                proof = self.head(number, link).hex()
                os.pwrite(handle, f"{number:020} {link.hex()} {proof}\n".encode(), 0)
        finally:
            os.close(handle)

    def marked(self) -> tuple[int, bytes] | None:
        """How far the log went at least; None if nothing was ever marked. Raises ValueError."""
        if self.path is None or not self.path.exists():
            return None
        found = _read(self.path.read_bytes())
        if found is None or not hmac.compare_digest(found[2], self.head(found[0], found[1])):
            raise ValueError("the mark was not written with our key")
        return found[:2]


def _read(line: bytes) -> tuple[int, bytes, bytes] | None:
    words = line.decode("ascii", "replace").split()
    try:
        number, link, proof = words
        return int(number), bytes.fromhex(link), bytes.fromhex(proof)
    except ValueError:
        return None


def load_key(path: Path) -> bytes:
    """The key in a file for its owner's eyes only; made if there is none.

    The file appears whole or not at all, whenever we are killed; of two processes that begin at
    the same time, one makes it.
    """
    if not path.exists():
        with _alone_in(path.parent) as folder:
            if not path.exists():
                _make_key(path)
                os.fsync(folder)
    key = read_key(path)
    assert key is not None
    return key


def read_key(path: Path) -> bytes | None:
    """The key in a file; None if there is no file. Raises ValueError for another content."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(text) != 2 * _KEY_BYTES:
        raise ValueError(f"{path} holds no key; restore it from a backup")
    return bytes.fromhex(text.decode())


@contextmanager
def _alone_in(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _make_key(path: Path) -> None:
    write_private(path, secrets.token_bytes(_KEY_BYTES).hex().encode())


def write_private(path: Path, content: bytes) -> None:
    """Put a file for its owner's eyes only in its place, whole and on disk."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


@dataclass(frozen=True, slots=True)
class Kept:
    """What seals the log of a folder, as it was at one moment: the files that it has."""

    folder: Path
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, folder: Path, given: bytes | None) -> Kept:
        """Read what a folder has; a key that was given is kept apart from files."""
        names = [MARK_FILE] if given is not None else [KEY_FILE, MARK_FILE]
        paths = [folder / name for name in names]
        return cls(folder, {path.name: path.read_bytes() for path in paths if path.exists()})

    def check(self, target: Path) -> None:
        """Refuse a folder that has another key: what is sealed with it would fit no more.

        Raises:
            Conflict: it has.
        """
        own, there = self.files.get(KEY_FILE), target / KEY_FILE
        if own is not None and there.exists() and there.read_bytes() != own:
            raise Conflict(
                f"{there} is another key than {self.folder / KEY_FILE}: it seals another house; "
                "name another folder, or remove that file if its house is no more"
            )

    def put_key(self, target: Path) -> None:
        """Copy the key, so that entries still fit."""
        self._put(KEY_FILE, target)

    def put_mark(self, target: Path) -> None:
        """Copy how far the log goes, once it does there."""
        self._put(MARK_FILE, target)

    def _put(self, name: str, target: Path) -> None:
        if name in self.files and self.folder.resolve() != target.resolve():
            write_private(target / name, self.files[name])
