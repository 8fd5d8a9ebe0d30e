"""Whether the server answers at all: what tells one that hangs from one that is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import psycopg

from postroom.errors import Unavailable
from postroom.store.postgres.connection import CONNECT_S, OPTIONS, PATIENCE_S

T = TypeVar("T")
LOOK_S = PATIENCE_S - CONNECT_S
"""How long work may take before we look whether the server is there."""


class Pulse:
    """Waits with whoever waits for the server, and gives up in place of a server that is silent.

    Work that takes long is let be as long as others are answered. What was given up may still be
    done once the server goes on, like all that is cut off at the commit.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._asking: asyncio.Task[bool] | None = None

    async def wait(self, work: Awaitable[T]) -> T:
        """What *work* returns. Raises Unavailable when the server has fallen silent."""
        doing = asyncio.ensure_future(work)
        try:
            while not doing.done():
                await asyncio.wait([doing], timeout=LOOK_S)
                if not (doing.done() or await self._beats() or doing.done()):
                    raise Unavailable("the database does not answer; try again", retry_after=2)
            return doing.result()
        finally:
            doing.cancel()

    async def _beats(self) -> bool:
        """Ask once for all who want to know at the same time."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> bool:
        """Silence alone is none: what is refused at once is tried again by who does the work."""
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await psycopg.AsyncConnection.connect(self._url, **OPTIONS)
                async with connection:
                    await connection.execute("SELECT 1")
        except (TimeoutError, psycopg.errors.ConnectionTimeout):
            return False
        except psycopg.Error:
            pass
        return True
