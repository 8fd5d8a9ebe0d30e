"""Who is at work in the room: what one process is not set up for, it leaves to those that are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Literal

from postroom.errors import MailError
from postroom.pipeline.house import House

log = logging.getLogger(__name__)

Role = Literal["serving", "relaying", "lending"]
"""A server or a worker; one that has a relay; one that only lends them its relay."""

Duty = Literal["all", "relay", "nothing"]
"""What one that fills in does now."""

LASTING = timedelta(seconds=30)
RENEW_S = 10.0

REMEMBERED = timedelta(days=1)
"""So long the room counts as one with a relay while nobody is there who has it: they restart."""

_WITH_RELAY = "relayed"


@asynccontextmanager
async def attending(house: House, roles: Sequence[Role]) -> AsyncIterator[None]:
    """Let the others know what this process does for as long as the block lasts."""
    holder = house.new_id("proc")
    await _say(house, roles, holder)
    renewing = asyncio.create_task(_renew(house, roles, holder))
    try:
        yield
    finally:
        renewing.cancel()
        for role in roles:
            with suppress(MailError):
                await house.store.leave(role, holder)


async def _renew(house: House, roles: Sequence[Role], holder: str) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        await _say(house, roles, holder)


async def _say(house: House, roles: Sequence[Role], holder: str) -> None:
    try:
        for role in roles:
            await house.store.attend(role, holder, now=house.clock(), lasting=LASTING)
        if not {"relaying", "lending"}.isdisjoint(roles):
            now = house.clock()
            await house.store.attend(_WITH_RELAY, "lately", now=now, lasting=REMEMBERED)
    except MailError as error:
        log.warning("attendance.failed", extra={"error": str(error)})


async def can_relay(house: House) -> bool:
    """Whether mail to strangers gets out of this room: by us, or by one that was there lately."""
    return house.has_relay or await house.store.is_attended(_WITH_RELAY, house.clock())


async def is_without_relay(house: House) -> bool:
    """Whether nobody who is at work just now has a relay."""
    if house.has_relay or await house.store.is_attended("relaying", house.clock()):
        return False
    return not await house.store.is_attended("lending", house.clock())


async def fill_in(
    house: House,
    at_work: Callable[[], AbstractAsyncContextManager[None]],
    lending: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> None:
    """Be at work whenever no server or worker is, or lend them our relay, until cancelled."""
    blocks = {"all": at_work, "relay": lending, "nothing": nullcontext}
    duty = await _duty(house, before="all")
    while True:
        rung = house.store.bell.rung("attendance")
        async with blocks[duty]():
            while (found := await _duty(house, before=duty)) == duty:
                rung = await _news(house, rung)
        duty = found


async def _duty(house: House, *, before: Duty) -> Duty:
    """What is left to do for one that fills in; while nobody can say, what it was before."""
    now = house.clock()
    try:
        if not await house.store.is_attended("serving", now):
            return "all"
        if house.has_relay and not await house.store.is_attended("relaying", now):
            return "relay"
    except MailError as error:
        log.warning("attendance.failed", extra={"error": str(error)})
        return before
    return "nothing"


async def _news(house: House, rung: int) -> int:
    """Wait until somebody came or went; who was killed says nothing, so not for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(RENEW_S):
            return await house.store.bell.wait("attendance", rung)
    return rung
