"""Mail from many connections at once: whoever waits while some is stored is stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from postroom.model.stored import Added
from postroom.pipeline.house import House
from postroom.pipeline.receive import Arrival, check_size, receive_many

_MOST_AT_ONCE = 64
_MOST_BYTES_AT_ONCE = 64 * 2**20

_Waiting = tuple[Sequence[Arrival], asyncio.Future[list[Added]]]


@dataclass(eq=False)
class Intake:
    """Stores what several connections bring with one sync of the disk for all of them.

    Two lots are under way at a time: one is read while the other is written.
    """

    house: House
    _waiting: list[_Waiting] = field(default_factory=list)
    _lots: set[asyncio.Task[None]] = field(default_factory=set)

    async def receive(self, arrivals: Sequence[Arrival]) -> list[Added]:
        """Take in copies of one mail, all or none; when this returns, they are on disk.

        Raises what `pipeline.receive.receive` raises.
        """
        for arrival in arrivals:
            check_size(arrival.raw, self.house.limits.message_bytes)
        done: asyncio.Future[list[Added]] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrivals, done))
        self._begin()
        return await done

    def _begin(self) -> None:
        while self._waiting and len(self._lots) < 2:
            task = asyncio.create_task(self._store(self._next_lot()))
            self._lots.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._lots.discard(task)
        self._begin()

    def _next_lot(self) -> list[_Waiting]:
        lot: list[_Waiting] = []
        size = 0
        while self._waiting and len(lot) < _MOST_AT_ONCE and size < _MOST_BYTES_AT_ONCE:
            lot.append(self._waiting.pop(0))
            size += sum(len(arrival.raw) for arrival in lot[-1][0])
        return lot

    async def _store(self, lot: list[_Waiting]) -> None:
        """One that cannot be stored must not take the others with it."""
        try:
            added = await receive_many(self.house, [a for arrivals, _ in lot for a in arrivals])
        except Exception as error:  # noqa: BLE001 - whoever brought the mail hears of it
            if len(lot) == 1:
                _fail(lot[0][1], error)
                return
            for waiting in lot:
                await self._store([waiting])
            return
        left = iter(added)
        for arrivals, done in lot:
            answer = [next(left) for _ in arrivals]
            if not done.done():
                done.set_result(answer)


def _fail(done: asyncio.Future[list[Added]], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
