"""What takes the mail of accounts out: kept open, and made anew when an account changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from postroom.blocking import in_thread
from postroom.model.account import Account
from postroom.pipeline.house import House
from postroom.ports.sender import Sender


class NoLogin(Exception):
    """What logs an account in is not on this machine."""


@dataclass(eq=False)
class _Kept:
    """A sender, what it was made from, and how many use it just now."""

    sender: Sender
    made_from: tuple[Any, ...]
    users: int = 0
    is_current: bool = True


@dataclass(eq=False)
class AccountSenders:
    """The senders of accounts, each by the account and the login as they are now.

    An account may be removed, and another added under its name; a login may be replaced. What was
    made before that takes no more mail, and is closed by the last who uses it.
    """

    house: House
    _kept: dict[str, _Kept] = field(default_factory=dict)

    @asynccontextmanager
    async def of(self, account_id: str) -> AsyncIterator[Sender | None]:
        """The sender of an account for one mail; None if the account is gone. Raises NoLogin."""
        account = await self.house.store.account(account_id, None)
        if account is None:
            await self._retire(account_id)
            yield None
            return
        kept = await self._current(account)
        kept.users += 1
        try:
            yield kept.sender
        finally:
            kept.users -= 1
            await _close_if_unused(kept)

    async def close(self) -> None:
        """Say goodbye to every provider."""
        for account_id in list(self._kept):
            await self._retire(account_id)

    async def _current(self, account: Account) -> _Kept:
        login = await in_thread(self.house.providers.login_mark, account.id)
        if login is None:
            raise NoLogin(account.id)
        made_from = (account.created_at, account.provider, account.address, account.options, login)
        kept = self._kept.get(account.id)
        if kept is not None and kept.made_from == made_from:
            return kept
        self._kept[account.id] = now = _Kept(self.house.providers.sender(account), made_from)
        await _retired(kept)
        return now

    async def _retire(self, account_id: str) -> None:
        await _retired(self._kept.pop(account_id, None))


async def _retired(kept: _Kept | None) -> None:
    if kept is not None:
        kept.is_current = False
        await _close_if_unused(kept)


async def _close_if_unused(kept: _Kept) -> None:
    if not kept.users and not kept.is_current:
        await kept.sender.close()
