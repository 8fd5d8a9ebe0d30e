"""What rules want done outside the house: forwards and replies, one after the other, once each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from postroom.errors import Conflict, Forbidden, InvalidInput, MailError, NotFound, TooLarge
from postroom.model.rule import Errand
from postroom.pipeline.house import House

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)
LOOK_AGAIN_S = 60.0
MOST_ATTEMPTS = 12
_AT_ONCE = 20
_FOR_GOOD = (Conflict, Forbidden, InvalidInput, NotFound, TooLarge)
"""What would end the same way if it were tried again."""


@dataclass(eq=False)
class Errands:
    """One worker. Only who holds the lease works, so that no sender is answered twice at once."""

    house: House
    perform: Callable[[Errand], Awaitable[None]]

    async def run(self) -> None:
        """Work until cancelled; what was under way then is done by whoever comes next, once."""
        holder = self.house.new_id("proc")
        try:
            while True:
                rung = self.house.store.bell.rung("errands")
                try:
                    await self.do_due(holder)
                    wait_s = await self._until_next()
                except MailError as error:
                    log.warning("errands.failed", extra={"error": str(error)})
                    wait_s = LOOK_AGAIN_S
                await self._wait(rung, wait_s)
        finally:
            await self.house.store.release("errands", holder)

    async def do_due(self, holder: str) -> int:
        """Do all that is due now; how much it was."""
        store, done = self.house.store, 0
        while await store.next_errand_at() is not None:
            now = self.house.clock()
            if not await store.claim("errands", holder, now=now, lasting=LEASE):
                return done
            errands = await store.claim_errands(holder, now=now, until=now + LEASE, limit=_AT_ONCE)
            for errand in errands:
                await self._do(errand)
            done += len(errands)
            if not errands:
                return done
        return done

    async def _wait(self, rung: int, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self.house.store.bell.wait("errands", rung)
        except TimeoutError:
            pass

    async def _until_next(self) -> float:
        next_at = await self.house.store.next_errand_at()
        if next_at is None:
            return LOOK_AGAIN_S
        return min(max((next_at - self.house.clock()).total_seconds(), 0.5), LOOK_AGAIN_S)

    async def _do(self, errand: Errand) -> None:
        failed, next_at = None, None
        try:
            await self.perform(errand)
        except MailError as error:
            failed = f"{errand.act.type}: {error}"
            if not isinstance(error, _FOR_GOOD) and errand.attempts < MOST_ATTEMPTS:
                next_at = self.house.clock() + timedelta(seconds=10 * 2**errand.attempts)
        except Exception as error:
            log.exception("errands.failed", extra={"errand": errand.id})
            failed = f"{errand.act.type}: an error of ours ({type(error).__name__}); see the log"
        now = self.house.clock()
        await self.house.store.settle_errand(errand, now=now, failed=failed, next_at=next_at)
