"""Work that happens by itself: one process at a time does each chore, and another takes over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from postroom.errors import MailError
from postroom.pipeline.house import House

log = logging.getLogger(__name__)

SWEEP_EVERY = timedelta(hours=6)
SWEEP_OLDER_THAN = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Chore:
    """A piece of work that comes round.

    `lease` is how long whoever does it keeps the others off; `work` returns whether there is more
    to do at once.
    """

    name: str
    every: timedelta
    lease: timedelta
    work: Callable[[], Awaitable[bool]]


def sweep(house: House) -> Chore:
    """Remove blobs that nothing uses any more."""

    async def work() -> bool:
        removed = await house.blobs.sweep(house.store.used_blobs, older_than=SWEEP_OLDER_THAN)
        if removed:
            log.info("blobs.swept", extra={"removed": removed})
        return False

    return Chore("sweep", SWEEP_EVERY, SWEEP_EVERY, work)


async def keep_up(house: House, chores: Sequence[Chore]) -> None:
    """Do the chores until cancelled. A chore that fails is logged and comes round again."""
    holder = house.new_id("proc")
    async with asyncio.TaskGroup() as group:
        for chore in chores:
            group.create_task(_repeat(house, chore, holder))


async def _repeat(house: House, chore: Chore, holder: str) -> None:
    while True:
        more = False
        try:
            if await house.store.claim(chore.name, holder, now=house.clock(), lasting=chore.lease):
                more = await chore.work()
        except MailError as error:
            log.warning("chore.failed", extra={"chore": chore.name, "error": str(error)})
        except Exception:
            log.exception("chore.failed", extra={"chore": chore.name})
        await asyncio.sleep(0 if more else chore.every.total_seconds())
