"""The HMAC of the audit log: its key, and a mark of the newest entry outside the database."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from postroom.errors import Conflict
from postroom.model.values import dataclass

KEY_FILE, MARK_FILE = "audit.key", "audit.mark"
START = b"\x00" * 32
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class AuditHmac:
    """Chains entries by an HMAC, and marks the newest one in a file beside the database.

    Without the key no valid entry can be written, so a changed, missing or reordered entry is
    detected. The mark detects missing entries at the end.
    """

    key: bytes = field(repr=False)
    path: Path | None = None

    def link(self, before: bytes, entry: bytes) -> bytes:
        """The HMAC of an entry, given that of the entry before."""
        return hmac.digest(self.key, b"entry" + before + entry, hashlib.sha256)

    def head(self, number: int, link: bytes) -> bytes:
        """The proof that the log ends, or ended, with this entry."""
        return hmac.digest(self.key, b"head%d:" % number + link, hashlib.sha256)

    @property
    def fingerprint(self) -> bytes:
        """Identifies the key without revealing it."""
        return hmac.digest(self.key, b"fingerprint", hashlib.sha256)

    def mark(self, number: int, link: bytes) -> None:
        """Record that the log has at least this entry; an earlier entry changes nothing."""
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
        """The marked entry; None if there is no mark. Raises ValueError if it is not valid."""
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
    """The key in a file that only its owner can read; created if there is none.

    The file is created atomically, and by one process if several start at the same time.
    """
    if not path.exists():
        with _folder_lock(path.parent) as folder:
            if not path.exists():
                write_private(path, secrets.token_bytes(_KEY_BYTES).hex().encode())
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
        raise ValueError(f"{path} is not a valid key; restore it from a backup")
    return bytes.fromhex(text.decode())


@contextmanager
def _folder_lock(folder: Path) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, atomically and to disk."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


@dataclass(frozen=True, slots=True)
class AuditKeyFiles:
    """The key and the mark of a data folder, as they were at one moment."""

    folder: Path
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, folder: Path, configured_key: bytes | None) -> AuditKeyFiles:
        """Read the files of a folder; a key from the settings is not copied."""
        names = [MARK_FILE] if configured_key is not None else [KEY_FILE, MARK_FILE]
        paths = [folder / name for name in names]
        return cls(folder, {path.name: path.read_bytes() for path in paths if path.exists()})

    def check(self, target: Path) -> None:
        """Check that the target has no other key.

        Raises:
            Conflict: it has one.
        """
        own, there = self.files.get(KEY_FILE), target / KEY_FILE
        if own is not None and there.exists() and there.read_bytes() != own:
            raise Conflict(
                f"{there} is another key than {self.folder / KEY_FILE}, of another installation; "
                "name another folder, or remove that file if its installation no longer exists"
            )

    def copy(self, name: str, target: Path) -> None:
        """Copy one of the files: the key first, and the mark after the log was copied."""
        if name in self.files and self.folder.resolve() != target.resolve():
            write_private(target / name, self.files[name])
