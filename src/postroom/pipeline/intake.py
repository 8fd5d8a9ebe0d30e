"""Mail from many connections at once: whoever waits while some is stored is stored together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from postroom.errors import Unavailable
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

Taken = Added | Exception
"""What became of a mail: it is stored, or something came in the way."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A mail whose bytes are written, and whoever waits for the rest."""

    mail: ParsedArrival
    keys: list[BlobKey]
    done: asyncio.Future[Taken]

    def tell(self, taken: Taken) -> None:
        if not self.done.done():
            self.done.set_result(taken)


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

    async def receive(self, arrivals: Sequence[Arrival]) -> list[Taken]:
        """Take in copies of one mail and say of each what became of it; what is stored is on disk.

        Raises InvalidInput, TooLarge, and StorageFull when there is no room for its bytes.
        """
        mails = await parse_arrivals(self.house, arrivals)
        keys = iter(await keep_bytes(self.house, mails))
        coming = [_waiting(mail, keys) for mail in mails]
        self._waiting += coming
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_all())
        return [await waiting.done for waiting in coming]

    async def _store_all(self) -> None:
        while self._waiting:
            await self._store(self._next_lot())
        self._storing = None

    def _next_lot(self) -> list[_Waiting]:
        lot: list[_Waiting] = []
        size = 0
        while self._waiting and len(lot) < _MOST_AT_ONCE and size < _MOST_BYTES_AT_ONCE:
            lot.append(self._waiting.pop(0))
            size += len(lot[-1].mail[0].raw)
        return lot

    async def _store(self, lot: list[_Waiting]) -> None:
        """One that cannot be stored must not take the others with it."""
        try:
            keys = [key for waiting in lot for key in waiting.keys]
            taken = await store_parsed(self.house, [waiting.mail for waiting in lot], keys)
        except Exception as error:  # noqa: BLE001 - whoever brought the mail hears of it
            if len(lot) == 1 or isinstance(error, Unavailable):
                for waiting in lot:
                    waiting.tell(error)
                return
            for waiting in lot:
                await self._store([waiting])
            return
        for waiting, added in zip(lot, taken, strict=True):
            waiting.tell(added)


def _waiting(mail: ParsedArrival, keys: Iterator[BlobKey]) -> _Waiting:
    own = list(islice(keys, 1 + len(mail[1].attachments)))
    return _Waiting(mail, own, asyncio.get_running_loop().create_future())
