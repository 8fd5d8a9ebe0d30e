"""A few connections to one account, lent out one at a time and kept warm in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from postroom.model.imap import ImapAccount, ImapTimeouts
from postroom.providers.imap.client import Client
from postroom.providers.imap.connecting import connect
from postroom.providers.imap.faults import ImapFault, TimedOut

MOST_CONNECTIONS = 4
KEPT_S = 240.0
"""How long a connection is kept that nobody uses; servers drop them after 30 minutes."""

RESTED_S = 20.0
PATIENCE_S = 10.0
"""What a connection that has rested may take for its first answer: it may be dead unnoticed."""


class Pool:
    """The connections to one account."""

    def __init__(self, account: ImapAccount, timeouts: ImapTimeouts) -> None:
        self.account = account
        self._timeouts = timeouts
        self._places = asyncio.Semaphore(MOST_CONNECTIONS)
        self._leased = 0
        self._idle: list[tuple[Client, float]] = []
        self._reaper: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def lease(self, *, fresh: bool = False, checked: bool = False) -> AsyncIterator[Client]:
        """Lend a connection; *checked* has it answer before it is used.

        Raises:
            ImapFault: there is none to be had.
        """
        await self._take_place()
        self._leased += 1
        try:
            client = await self._client(fresh=fresh, checked=checked)
            client.leases += 1
            try:
                yield client
            finally:
                self._give_back(client)
        finally:
            self._leased -= 1
            self._places.release()

    async def _take_place(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                await self._places.acquire()
        except TimeoutError as error:
            raise TimedOut("every connection to this account is in use") from error

    async def _client(self, *, fresh: bool, checked: bool) -> Client:
        while self._idle and not fresh:
            client, since = self._idle.pop()
            if client.connection.is_closed:
                continue
            has_rested = asyncio.get_running_loop().time() - since > RESTED_S
            client.connection.patience_s = PATIENCE_S if has_rested else None
            if not checked or await _is_alive(client):
                return client
        self._make_room()
        return await connect(self.account, self._timeouts)

    def _make_room(self) -> None:
        """Leave what rests where one more would be too many: servers count, too."""
        while self._idle and len(self._idle) + self._leased > MOST_CONNECTIONS:
            client, _ = self._idle.pop(0)
            client.connection.close("another one takes its place")

    def _give_back(self, client: Client) -> None:
        """Keep what is good for another lease; what was left half-way is not."""
        if client.connection.is_closed:
            return
        if client.connection.is_busy:
            client.connection.close("the work on it was given up")
            return
        self._idle.append((client, asyncio.get_running_loop().time()))
        self._reap_later()

    def _reap_later(self) -> None:
        if self._reaper is None:
            self._reaper = asyncio.get_running_loop().call_later(KEPT_S, self._reap)

    def _reap(self) -> None:
        self._reaper = None
        oldest = asyncio.get_running_loop().time() - KEPT_S
        for client, since in self._idle:
            if since <= oldest:
                client.connection.close("not used for long")
        self._idle = [(c, since) for c, since in self._idle if not c.connection.is_closed]
        if self._idle:
            self._reap_later()

    async def close(self) -> None:
        """Leave the server."""
        if self._reaper is not None:
            self._reaper.cancel()
        idle, self._idle = self._idle, []
        await asyncio.gather(*(client.logout() for client, _ in idle))


async def _is_alive(client: Client) -> bool:
    try:
        await client.noop(timeout_s=PATIENCE_S)
    except ImapFault:
        client.connection.close("it did not answer any more")
        return False
    return True
