"""A turn: of several runs that would write into one place, one does, until it ends or is gone."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Self

from postroom.errors import Conflict, MailError
from postroom.store.sql import leases
from postroom.store.transaction import Engine, Transaction

_NAME = "moving"
_LASTING = timedelta(seconds=20)
_RENEWED_S = 5.0
_LOOKS = 30
"""So many seconds we wait for one that may be gone: its lease ends, unless it is renewed."""

UNTIL = "SELECT until FROM leases WHERE name = :name"
UNDER_WAY = "another `postroom migrate` into this place is under way; let it end, or end it"
TAKEN_OVER = (
    "another `postroom migrate` into this place has taken over or is done; this one has ended"
)


class Turn:
    """Held while it is entered. Who was stopped for too long may find that another has it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._holder = secrets.token_hex(8)
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Wait for one that is gone. Raises Conflict if one is there."""
        seen = None
        for _ in range(_LOOKS):
            if await self._engine.write(self._claim):
                self._renewing = asyncio.create_task(self._renew())
                return self
            until = await self._engine.read(lambda tx: tx.one(UNTIL, name=_NAME))
            if seen is not None and until != seen:
                break
            seen = until
            await asyncio.sleep(1)
        raise Conflict(UNDER_WAY)

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        with suppress(MailError):
            await self._engine.write(partial(leases.release, name=_NAME, holder=self._holder))

    def keep(self, tx: Transaction) -> None:
        """Go on, in the transaction of what is written. Raises Conflict if another has taken over.

        What is checked here cannot change before the commit.
        """
        if not self._claim(tx):
            raise Conflict(TAKEN_OVER)

    def _claim(self, tx: Transaction) -> bool:
        now = datetime.now(UTC)
        return leases.claim(tx, _NAME, self._holder, now=now, lasting=_LASTING)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEWED_S)
            with suppress(MailError):
                await self._engine.write(self._claim)
