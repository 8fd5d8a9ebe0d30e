"""Live access to IMAP accounts: the port `LiveImap`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from postroom.errors import ProviderError
from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.ports.imap import ImapSession
from postroom.providers.imap.errors import Disconnected, TimedOut, imap_errors
from postroom.providers.imap.pool import Pool
from postroom.providers.imap.session import Session

T = TypeVar("T")


class ImapAccounts:
    """The configured accounts with their connection pools."""

    def __init__(
        self,
        accounts: Iterable[ImapAccount],
        timeouts: ImapTimeouts,
        *,
        is_write_enabled: bool = False,
    ) -> None:
        self.accounts = tuple(sorted(accounts, key=lambda account: account.account_id))
        self.is_write_enabled = is_write_enabled
        self._pools = {account.account_id: Pool(account, timeouts) for account in self.accounts}

    async def read(self, account_id: str, work: Callable[[ImapSession], Awaitable[T]]) -> T:
        session: Session | None = None
        try:
            async with self._lease(account_id) as session:
                return await work(session)
        except ProviderError as error:
            if not _may_retry(error, session):
                raise
        async with self._lease(account_id, fresh=True) as session:
            return await work(session)

    def session(self, account_id: str) -> AbstractAsyncContextManager[ImapSession]:
        return self._lease(account_id, checked=True)

    def fresh_session(self, account_id: str) -> AbstractAsyncContextManager[ImapSession]:
        return self._lease(account_id, fresh=True)

    @asynccontextmanager
    async def _lease(
        self, account_id: str, *, fresh: bool = False, checked: bool = False
    ) -> AsyncIterator[Session]:
        pool = self._pools[account_id]
        with imap_errors(pool.account):
            async with pool.lease(fresh=fresh, checked=checked) as client:
                yield Session(pool.account, client)

    async def close(self) -> None:
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))


def _may_retry(error: ProviderError, session: Session | None) -> bool:
    """Whether to retry: after a lost connection, or a timeout of one that was used before."""
    if isinstance(error.__cause__, Disconnected):
        return True
    was_used = session is not None and session.client.leases > 1
    return was_used and isinstance(error.__cause__, TimedOut)
