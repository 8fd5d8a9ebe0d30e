"""Whether the server answers at all: what tells one that hangs from one that is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import psycopg

from postroom.errors import Unavailable
from postroom.store.postgres.connection import CONNECT_S, OPTIONS, PATIENCE_S
from postroom.store.postgres.hosts import Hosts

T = TypeVar("T")
LOOK_S = PATIENCE_S - CONNECT_S
"""How long work may take before we look whether the server is there."""

HURRY_S = 1.5
"""How soon the server must answer when we are about to stop."""

_PAUSE_S = 0.25


class Pulse:
    """Waits with whoever waits for the server, and gives up in place of a server that is silent.

    Work that takes long is let be as long as others are answered. What was given up may still be
    done once the server goes on, like all that is cut off at the commit.
    """

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._asking: asyncio.Task[bool] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._is_given_up = False

    async def wait(self, work: Awaitable[T]) -> T:
        """What *work* returns. Raises Unavailable when the server has fallen silent."""
        doing: asyncio.Future[T] = asyncio.ensure_future(work)
        if self._is_given_up:
            doing.cancel()
        self._waiting.add(doing)
        try:
            while not doing.done():
                await asyncio.wait([doing], timeout=LOOK_S)
                if not (doing.done() or await self._beats(doing)):
                    raise _silent()
            if self._is_given_up and doing.cancelled():
                raise _silent()
            return doing.result()
        finally:
            self._waiting.discard(doing)
            doing.cancel()

    def hurry(self) -> None:
        """Look in a moment, and again and again, and give up for all as soon as it is silent."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._leave())

    def close(self) -> None:
        """Look no more."""
        if self._leaving is not None:
            self._leaving.cancel()

    async def _leave(self) -> None:
        is_there = True
        while is_there:
            await asyncio.sleep(_PAUSE_S)  # as a rule everything is over by then
            is_there = await self._ask(HURRY_S)
        self._is_given_up = True
        for doing in tuple(self._waiting):
            doing.cancel()

    async def _beats(self, doing: asyncio.Future[Any]) -> bool:
        """Ask once for all who want to know at the same time, and have no answer of their own."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(CONNECT_S * self._hosts.count))
        asking = self._asking
        await asyncio.wait([doing, asking], return_when=asyncio.FIRST_COMPLETED)
        return doing.done() or asking.result()

    async def _ask(self, within_s: float) -> bool:
        """Silence alone is none: what is refused at once is tried again by who does the work."""
        try:
            async with asyncio.timeout(within_s):
                connection = await psycopg.AsyncConnection.connect(self._hosts.url, **OPTIONS)
                self._hosts.remember(connection.info)
                async with connection:
                    await connection.execute("SELECT 1")
        except (TimeoutError, psycopg.errors.ConnectionTimeout):
            return False
        except psycopg.Error:
            pass
        return True


def _silent() -> Unavailable:
    return Unavailable("the database does not answer; try again", retry_after=2)
