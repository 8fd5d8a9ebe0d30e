"""Work that happens by itself: no process does what another is at, and any takes over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from postroom.errors import MailError
from postroom.pipeline.house import House
from postroom.pipeline.learning import forget_other_models, learn_more
from postroom.pipeline.ownership import sweep_blobs

log = logging.getLogger(__name__)

SWEEP_EVERY = timedelta(hours=6)
SWEEP_FIRST = timedelta(minutes=10)
SWEEP_OLDER_THAN = timedelta(hours=24)
TIDY_EVERY = timedelta(seconds=3)
LEARN_EVERY = timedelta(seconds=2)
FORGET_EVERY = timedelta(hours=1)
TIDY_STEPS = 6
"""For 200 mails they keep up: one of them merges now and then, the others sweep."""


@dataclass(frozen=True, slots=True)
class Chore:
    """A piece of work that comes round.

    `work` returns whether there is more to do at once.
    """

    name: str
    first: timedelta
    every: timedelta
    work: Callable[[], Awaitable[bool]]


def chores(house: House) -> tuple[Chore, ...]:
    """All that happens by itself."""
    return (
        Chore("tidy", TIDY_EVERY, TIDY_EVERY, house.store.tidy),
        # while one merges for a minute, the other takes in what comes
        Chore("tidy meanwhile", TIDY_EVERY, TIDY_EVERY, house.store.tidy),
        Chore("learn", LEARN_EVERY, LEARN_EVERY, lambda: learn_more(house)),
        Chore("forget", LEARN_EVERY, FORGET_EVERY, lambda: forget_other_models(house)),
        Chore("leases", FORGET_EVERY, FORGET_EVERY, lambda: forget_leases(house)),
        Chore("sweep", SWEEP_FIRST, SWEEP_EVERY, lambda: sweep(house)),
    )


async def forget_leases(house: House) -> bool:
    """Forget leases that have run out: some are taken once and never again."""
    await house.store.forget_leases(house.clock())
    return False


async def sweep(house: House) -> bool:
    """Remove blobs that nothing uses any more; only who gets the lease does."""
    holder = house.new_id("proc")
    if await house.store.claim("sweep", holder, now=house.clock(), lasting=SWEEP_EVERY):
        removed = await sweep_blobs(house, older_than=SWEEP_OLDER_THAN)
        log.info("blobs.swept", extra={"removed": removed})
    return False


async def keep_up(chores: Sequence[Chore]) -> None:
    """Do the chores until cancelled. One that fails is logged and comes round again."""
    async with asyncio.TaskGroup() as group:
        for chore in chores:
            group.create_task(_repeat(chore))


async def _repeat(chore: Chore) -> None:
    wait = chore.first
    while True:
        await asyncio.sleep(wait.total_seconds())
        try:
            more = await chore.work()
        except MailError as error:
            more = False
            log.warning("chore.failed", extra={"chore": chore.name, "error": str(error)})
        except Exception:
            more = False
            log.exception("chore.failed", extra={"chore": chore.name})
        wait = timedelta(0) if more else chore.every


async def tidy_some(house: House) -> None:
    """Do the work on the index that a batch of mail gives rise to, also where no server does."""
    for _ in range(TIDY_STEPS):
        if not await house.store.tidy():
            break


async def tidy_all(house: House) -> None:
    """Do all the work on the index that is there now."""
    while await house.store.tidy():
        pass
