"""Heartbeats of running processes, and the check whether mail can be stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Literal

from postroom.errors import MailError
from postroom.pipeline.services import Services, wait_for_notification

log = logging.getLogger(__name__)

Role = Literal["serving", "relaying", "lending"]
"""A server or a worker; a process that has a relay; a process that only sends for the others."""

Duty = Literal["all", "relay", "nothing"]
"""What a stdio server or a command does while it runs."""

LEASE = timedelta(seconds=30)
RENEW_S = 10.0

RELAY_REMEMBERED = timedelta(days=1)
"""How long a relay counts as present after its process stopped: it may restart."""

RELAY_SEEN = "relayed"


@asynccontextmanager
async def heartbeat(services: Services, roles: Sequence[Role]) -> AsyncIterator[None]:
    """Announce the roles of this process until the block ends."""
    holder = services.new_id("proc")
    await _beat(services, roles, holder)
    renewing = asyncio.create_task(_renew(services, roles, holder))
    try:
        yield
    finally:
        renewing.cancel()
        for role in roles:
            with suppress(MailError):
                await services.store.end_heartbeat(role, holder)


async def _renew(services: Services, roles: Sequence[Role], holder: str) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        await _beat(services, roles, holder)


async def _beat(services: Services, roles: Sequence[Role], holder: str) -> None:
    try:
        for role in roles:
            await services.store.add_heartbeat(role, holder, now=services.clock(), lasting=LEASE)
        if not {"relaying", "lending"}.isdisjoint(roles):
            now = services.clock()
            await services.store.add_heartbeat(
                RELAY_SEEN, "lately", now=now, lasting=RELAY_REMEMBERED
            )
    except MailError as error:
        log.warning("heartbeat.failed", extra={"error": str(error)})


async def run_when_unattended(
    services: Services,
    run_all: Callable[[], AbstractAsyncContextManager[None]],
    run_relay: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> None:
    """Run the pipeline while no server or worker does, or only our relay, until cancelled."""
    blocks = {"all": run_all, "relay": run_relay, "nothing": nullcontext}
    duty = await _duty(services, before="all")
    while True:
        position = services.store.notifier.position("heartbeats")
        async with blocks[duty]():
            while (next_duty := await _duty(services, before=duty)) == duty:
                position = await wait_for_notification(services, "heartbeats", position, RENEW_S)
        duty = next_duty


async def _duty(services: Services, *, before: Duty) -> Duty:
    """What no other process does; if the store is unavailable, what it was before."""
    now = services.clock()
    try:
        if not await services.store.has_heartbeat("serving", now):
            return "all"
        if services.has_relay and not await services.store.has_heartbeat("relaying", now):
            return "relay"
    except MailError as error:
        log.warning("heartbeat.failed", extra={"error": str(error)})
        return before
    return "nothing"


async def check_ready(services: Services) -> None:
    """Check that database and blob store can be written. Raises MailError."""
    await services.store.ping()
    await services.blobs.check()
