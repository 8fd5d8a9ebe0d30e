"""The door to secrets: passwords and tokens, kept apart from everything else."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

Secret = Mapping[str, str]
"""What logs an account in: a password, or tokens."""


class Vault(Protocol):
    """Keeps what nobody else may see. Writing replaces the whole secret in one step."""

    def read(self, name: str) -> Secret | None: ...
    def write(self, name: str, secret: Secret) -> None: ...
    def remove(self, name: str) -> None: ...
    def renewing(self, name: str) -> AbstractContextManager[None]:
        """Held by whoever replaces a secret, in this process or another."""
