"""Access tokens that are renewed in time, by one process at a time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from postroom.blocking import in_thread
from postroom.errors import ProviderAuthFailed
from postroom.ports.vault import Secret, Vault

EARLY_S = 300
"""Renewed so long before they expire: a request may take a while, and clocks differ."""

Refresh = Callable[[str], Awaitable[Secret]]
"""From a refresh token to a new secret. Raises ProviderAuthFailed when it is not accepted."""


@dataclass(eq=False)
class Tokens:
    """The tokens of one account. A new refresh token replaces the old one in one step."""

    vault: Vault
    account_id: str
    refresh: Refresh
    now: Callable[[], float] = time.time
    _secret: Secret = field(default_factory=dict, repr=False)

    async def header(self) -> str:
        if not self._secret:
            self._secret = self._stored()
        if self._expires_at(self._secret) - EARLY_S <= self.now():
            await self.renew(self._said(self._secret))
        return self._said(self._secret)

    async def renew(self, refused: str) -> bool:
        async with self._alone():
            stored = self._stored()
            is_other = self._said(stored) != refused
            if is_other and self._expires_at(stored) - EARLY_S > self.now():
                self._secret = stored
                return True
            token = stored.get("refresh_token")
            if not token:
                if self._expires_at(stored) > self.now() and is_other:
                    return False
                raise ProviderAuthFailed(
                    f"{self.account_id}: the token expired, and there is none to renew it"
                )
            found = await self.refresh(token)
            self._secret = {**stored, **found}
            await in_thread(self.vault.write, self.account_id, self._secret)
        return True

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Two that renew at once would make each other's refresh token invalid."""
        lock = self.vault.renewing(self.account_id)
        await in_thread(lock.__enter__)
        try:
            yield
        finally:
            lock.__exit__(None, None, None)

    def _stored(self) -> Secret:
        secret = self.vault.read(self.account_id)
        if secret is None or "access_token" not in secret:
            raise ProviderAuthFailed(f"{self.account_id}: there is no token for it here")
        return secret

    @staticmethod
    def _said(secret: Secret) -> str:
        return f"Bearer {secret['access_token']}"

    @staticmethod
    def _expires_at(secret: Secret) -> float:
        return float(secret.get("expires_at") or 2**40)
