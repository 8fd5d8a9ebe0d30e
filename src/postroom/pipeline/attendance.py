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

Role = Literal["serving", "relaying"]
"""A server or a worker; one that has a relay."""

LASTING = timedelta(seconds=30)
RENEW_S = 10.0


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
    except MailError as error:
        log.warning("attendance.failed", extra={"error": str(error)})


async def can_relay(house: House) -> bool:
    """Whether mail to strangers gets out of this room, by this process or by another."""
    return house.has_relay or await house.store.is_attended("relaying", house.clock())


async def fill_in(house: House, at_work: Callable[[], AbstractAsyncContextManager[None]]) -> None:
    """Be at work whenever no server or worker is, until cancelled."""
    is_served = await _is_served(house, before=False)
    while True:
        async with nullcontext() if is_served else at_work():
            rung = house.store.bell.rung("attendance")
            while await _is_served(house, before=is_served) is is_served:
                rung = await _news(house, rung)
        is_served = not is_served


async def _is_served(house: House, *, before: bool) -> bool:
    try:
        return await house.store.is_attended("serving", house.clock())
    except MailError as error:
        log.warning("attendance.failed", extra={"error": str(error)})
        return before


async def _news(house: House, rung: int) -> int:
    """Wait until somebody came or went; who was killed says nothing, so not for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(RENEW_S):
            return await house.store.bell.wait("attendance", rung)
    return rung
