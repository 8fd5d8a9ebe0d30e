"""Secrets of accounts, in encrypted files or in the keyring of the operating system.

Files have mode 0600, one for each account. Their key is in the file that `POSTROOM_VAULT_KEY_FILE`
names, or in `key` in the same folder. A key in the same folder protects only copies of the folder
that leave it out.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from postroom.errors import MailError
from postroom.ports.provider import Secret, Vault

_KEY = "key"
_NONCE_BYTES = 12
_KEY_BYTES = 32


class FileVault:
    """A folder of encrypted files."""

    def __init__(self, folder: Path, key_file: Path | None = None) -> None:
        self._folder = folder
        self._path = key_file or folder / _KEY

    def move_key(self) -> None:
        """Move the key from the folder of the secrets to the file that the settings name.

        If that file has another key, every secret is encrypted again with it. The old key stays
        until the end, so an interrupted move is finished by the next call.
        """
        beside = self._folder / _KEY
        if self._path == beside or not beside.exists():
            return
        with self.renewal_lock(".move"):
            if not beside.exists():
                return
            old = _read_key(beside)
            if not self._path.exists():
                self._replace(self._path, beside.read_bytes())
            elif (new := _read_key(self._path)) != old:
                for path in sorted(self._folder.glob("*.sealed")):
                    with self.renewal_lock(path.stem), suppress(FileNotFoundError):
                        opened = _decrypt(path.read_bytes(), path.stem, old)
                        if opened is not None:
                            self._replace(path, _encrypt(opened, path.stem, new))
            beside.unlink()
            _sync_folder(self._folder)

    def key_in_use(self) -> Path | None:
        """The file with the key of the stored secrets; None without secrets. Raises MailError."""
        if not any(self._folder.glob("*.sealed")):
            return None
        for path in (self._folder / _KEY, self._path):
            if path.exists():
                _read_key(path)
                return path
        self._refuse_without_key()
        return None

    def read(self, name: str) -> Secret | None:
        try:
            sealed = (self._folder / f"{name}.sealed").read_bytes()
        except FileNotFoundError:
            return None
        opened = _decrypt(sealed, name, self._key())
        if opened is None:
            raise MailError(
                f"the secret of {name} cannot be decrypted; run: postroom account login {name}"
            )
        secret: dict[str, str] = json.loads(opened)
        return secret

    def write(self, name: str, secret: Secret) -> None:
        text = json.dumps(dict(secret)).encode()
        self._replace(self._folder / f"{name}.sealed", _encrypt(text, name, self._key()))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            (self._folder / f"{name}.sealed").unlink()
            _sync_folder(self._folder)

    @contextmanager
    def renewal_lock(self, name: str) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self._folder / f"{name}.lock", "w", opener=_open_private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _key(self) -> bytes:
        """The key, created on first use. Raises MailError if secrets exist without their key."""
        if not self._path.exists():
            with self.renewal_lock(_KEY):
                if not self._path.exists():
                    self._refuse_without_key()
                    try:
                        self._replace(self._path, os.urandom(_KEY_BYTES))
                    except OSError as error:
                        reason = f"cannot be written: {error.strerror}"
                        raise MailError(f"{self._path} {reason}") from error
        return _read_key(self._path)

    def _refuse_without_key(self) -> None:
        if any(self._folder.glob("*.sealed")):
            raise MailError(
                f"the key of the logins in {self._folder} is not at {self._path}; restore it, "
                "or set POSTROOM_VAULT_KEY_FILE to its path. If it is lost, remove the "
                f"files {self._folder}/*.sealed and run `postroom account login` for each account"
            )

    def _replace(self, path: Path, content: bytes) -> None:
        """Replace a file atomically."""
        if path.parent == self._folder:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        with open(part, "wb", opener=_open_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _encrypt(text: bytes, name: str, key: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, text, name.encode())


def _decrypt(encrypted: bytes, name: str, key: bytes) -> bytes | None:
    """The plain text; None if it was encrypted with another key or for another account."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        nonce, text = encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:]
        return AESGCM(key).decrypt(nonce, text, name.encode())
    except (InvalidTag, ValueError):
        return None


def _read_key(path: Path) -> bytes:
    """Read a key of 32 bytes or 64 hexadecimal digits. Raises MailError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MailError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) == _KEY_BYTES:
        return content
    with suppress(ValueError):
        key = bytes.fromhex(content.decode("ascii"))
        if len(key) == _KEY_BYTES:
            return key
    raise MailError(f"{path} holds no key; it must have 32 bytes or 64 hexadecimal digits")


def holds_key(folder: Path) -> bool:
    """Whether the key is in the same folder as the secrets."""
    return (folder / _KEY).exists() and any(folder.glob("*.sealed"))


def copy_vault(source: Path, target: Path, *, replaces: bool) -> None:
    """Copy all secrets, with their key if it is in the same folder.

    Secrets that the source no longer has are removed from the target. A target with another key is
    left alone unless *replaces* is set.
    """
    files = [*sorted(source.glob("*.sealed")), *source.glob(_KEY)]
    if not files or (target.exists() and source.samefile(target)):
        return
    key, other = source / _KEY, target / _KEY
    is_same = key.exists() and other.exists() and other.read_bytes() == key.read_bytes()
    if not replaces and other.exists() and not is_same:
        return
    copy = FileVault(target)
    known = (*target.glob("*.sealed"), *target.glob(_KEY))
    for path in files:
        copy._replace(target / path.name, path.read_bytes())
    for old in set(known) - {target / path.name for path in files}:
        old.unlink()


class KeyringVault:
    """The keyring; lock files in *folder* serialise renewals between processes."""

    def __init__(self, keyring: Any, folder: Path) -> None:
        self._keyring = keyring
        self._service = f"postroom:{folder}"
        self.renewal_lock = FileVault(folder).renewal_lock

    def read(self, name: str) -> Secret | None:
        text = self._keyring.get_password(self._service, name)
        secret: dict[str, str] | None = json.loads(text) if text else None
        return secret

    def write(self, name: str, secret: Secret) -> None:
        self._keyring.set_password(self._service, name, json.dumps(dict(secret)))

    def remove(self, name: str) -> None:
        from keyring.errors import PasswordDeleteError

        with suppress(PasswordDeleteError):
            self._keyring.delete_password(self._service, name)


def open_vault(folder: Path, kind: str, key_file: Path | None = None) -> Vault:
    """Open the vault, and move its key if the settings ask for that. Raises MailError."""
    vault = choose_vault(folder, kind, key_file)
    return open_files(folder, key_file) if isinstance(vault, FileVault) else vault


def choose_vault(folder: Path, kind: str, key_file: Path | None) -> KeyringVault | FileVault:
    """The keyring if a usable one exists, else files. Raises MailError."""
    backend = None if kind == "file" else _usable_backend()
    if backend is not None:
        return KeyringVault(backend, folder)
    if kind == "keyring":
        raise MailError("the operating system has no keyring; set POSTROOM_SECRETS=file")
    return FileVault(folder, key_file)


def open_files(folder: Path, key_file: Path | None) -> FileVault:
    """Open the files, and move their key if the settings ask for that. Raises MailError."""
    vault = FileVault(folder, key_file)
    try:
        vault.move_key()
    except OSError as error:
        raise MailError(
            f"POSTROOM_VAULT_KEY_FILE: the key cannot be moved to {key_file}: {error.strerror}; "
            "create its folder, readable by you only"
        ) from error
    return vault


def _usable_backend() -> Any | None:
    """A keyring that encrypts and does not prompt, as those of desktops."""
    try:
        import keyring
        from keyring.backends import chainer, fail, null
    except ImportError:
        return None
    backend = keyring.get_keyring()
    if isinstance(backend, (fail.Keyring, null.Keyring)) or backend.priority < 1:
        return None
    if isinstance(backend, chainer.ChainerBackend) and not backend.backends:
        return None
    return backend
