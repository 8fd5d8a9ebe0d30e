"""Mail from many connections at once: whoever waits while some is stored is stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from postroom.model.attachment import BlobKey
from postroom.model.stored import Added
from postroom.pipeline.house import House
from postroom.pipeline.receive import (
    Arrival,
    ParsedArrival,
    keep_bytes,
    parse_arrivals,
    store_parsed,
)

_MOST_AT_ONCE = 64
_MOST_BYTES_AT_ONCE = 64 * 2**20

_Waiting = tuple[Sequence[ParsedArrival], list[BlobKey], asyncio.Future[list[Added]]]


@dataclass(eq=False)
class Intake:
    """Stores what several connections bring with one sync of the disk for all of them.

    Each mail is read and its bytes are written by itself, so that a large one holds nobody up.
    Then it is stored in one lot at a time: the more mail comes while one is written, the larger is
    the next.
    """

    house: House
    _waiting: list[_Waiting] = field(default_factory=list)
    _storing: asyncio.Task[None] | None = None

    async def receive(self, arrivals: Sequence[Arrival]) -> list[Added]:
        """Take in copies of one mail, all or none; when this returns, they are on disk.

        Raises what `pipeline.receive.receive` raises.
        """
        mails = await parse_arrivals(self.house, arrivals)
        keys = await keep_bytes(self.house, mails)
        done: asyncio.Future[list[Added]] = asyncio.get_running_loop().create_future()
        self._waiting.append((mails, keys, done))
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_all())
        return await done

    async def _store_all(self) -> None:
        while self._waiting:
            await self._store(self._next_lot())
        self._storing = None

    def _next_lot(self) -> list[_Waiting]:
        lot: list[_Waiting] = []
        size = 0
        while self._waiting and len(lot) < _MOST_AT_ONCE and size < _MOST_BYTES_AT_ONCE:
            lot.append(self._waiting.pop(0))
            size += sum(len(arrival.raw) for arrival, _ in lot[-1][0])
        return lot

    async def _store(self, lot: list[_Waiting]) -> None:
        """One that cannot be stored must not take the others with it."""
        try:
            mails = [mail for some, _, _ in lot for mail in some]
            keys = [key for _, some, _ in lot for key in some]
            added = await store_parsed(self.house, mails, keys)
        except Exception as error:  # noqa: BLE001 - whoever brought the mail hears of it
            if len(lot) == 1:
                _fail(lot[0][2], error)
                return
            for waiting in lot:
                await self._store([waiting])
            return
        left = iter(added)
        for some, _, done in lot:
            answer = [next(left) for _ in some]
            if not done.done():
                done.set_result(answer)


def _fail(done: asyncio.Future[list[Added]], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
