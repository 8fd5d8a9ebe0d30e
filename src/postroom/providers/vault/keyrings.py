"""Secrets in the keyring of the operating system."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from postroom.errors import MailError
from postroom.ports.vault import Secret, Vault
from postroom.providers.vault.files import FileVault

_SERVICE = "postroom"


class KeyringVault:
    """The keyring; a file in *folder* keeps two processes from renewing a secret at once."""

    def __init__(self, keyring: Any, folder: Path) -> None:
        self._keyring = keyring
        self._locks = FileVault(folder)
        self._service = f"{_SERVICE}:{folder}"

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

    @contextmanager
    def renewing(self, name: str) -> Iterator[None]:
        with self._locks.renewing(name):
            yield


def open_vault(folder: Path, kind: str) -> Vault:
    """The keyring if there is one that keeps secrets, else files. Raises MailError."""
    if kind == "file":
        return FileVault(folder)
    backend = _usable_backend()
    if backend is not None:
        return KeyringVault(backend, folder)
    if kind == "keyring":
        raise MailError(
            "there is no keyring of the operating system here; set POSTROOM_SECRETS=file"
        )
    return FileVault(folder)


def _usable_backend() -> Any | None:
    """A keyring that encrypts and needs nobody to type something: the ones of desktops do."""
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
