"""Secrets in encrypted files of mode 0600, one for each account.

The key that opens them is in a file of its own: whoever copies the database, the mail or the
secrets alone gets nothing that logs in anywhere.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from postroom.errors import MailError
from postroom.ports.vault import Secret

_KEY = "key"
_NONCE_BYTES = 12


class FileVault:
    """A folder of encrypted files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> Secret | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            sealed = (self._folder / f"{name}.sealed").read_bytes()
        except FileNotFoundError:
            return None
        try:
            nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            opened = AESGCM(self._key()).decrypt(nonce, text, name.encode())
        except InvalidTag:
            raise MailError(
                f"the secret of {name} cannot be opened; run: postroom account login {name}"
            ) from None
        secret: dict[str, str] = json.loads(opened)
        return secret

    def write(self, name: str, secret: Secret) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        text = json.dumps(dict(secret)).encode()
        sealed = AESGCM(self._key()).encrypt(nonce, text, name.encode())
        self._put(self._folder / f"{name}.sealed", nonce + sealed)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            (self._folder / f"{name}.sealed").unlink()
            self._sync()

    @contextmanager
    def renewing(self, name: str) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self._folder / f"{name}.lock", "w", opener=_private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _key(self) -> bytes:
        """The key, made on first use; of several processes at once, one makes it."""
        path = self._folder / _KEY
        if not path.exists():
            with self.renewing(_KEY):
                if not path.exists():
                    self._put(path, os.urandom(32))
        return path.read_bytes()

    def _put(self, path: Path, content: bytes) -> None:
        """Replace a file in one step; after a kill there is the old one or the new one."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        with open(part, "wb", opener=_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        self._sync()

    def _sync(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def copy_vault(source: Path, target: Path, *, replaces: bool) -> None:
    """Copy all secrets and the key that opens them; one that is gone goes from the copy too.

    Unless it *replaces* them, secrets of somebody else are left alone.
    """
    key = source / _KEY
    if not key.exists() or (target.exists() and source.samefile(target)):
        return
    other = target / _KEY
    if not replaces and other.exists() and other.read_bytes() != key.read_bytes():
        return
    copy = FileVault(target)
    kept = sorted(source.glob("*.sealed"))
    for old in set(target.glob("*.sealed")) - {target / path.name for path in kept}:
        old.unlink()
    for path in (*kept, key):
        copy._put(target / path.name, path.read_bytes())
