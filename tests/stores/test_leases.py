"""Leases: one holder at a time, and another takes over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from postroom.pipeline.services import Services

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def claim(services: Services, holder: str, after: timedelta = timedelta(0)) -> bool:
    return await services.store.claim("outbox", holder, now=NOW + after, lifetime=MINUTE)


async def test_one_of_many_gets_the_lease_and_may_renew_it(services: Services) -> None:
    granted = await asyncio.gather(*(claim(services, f"p{number}") for number in range(20)))

    holder = f"p{granted.index(True)}"
    assert 1 == sum(granted)
    assert await claim(services, holder)
    assert not await claim(services, "another")


async def test_another_takes_over_when_the_lease_has_ended(services: Services) -> None:
    assert await claim(services, "first")

    assert not await claim(services, "second", MINUTE - timedelta(seconds=1))
    assert await claim(services, "second", MINUTE)
    assert not await claim(services, "first", MINUTE)


async def test_a_lease_given_back_is_free_at_once(services: Services) -> None:
    await claim(services, "first")

    await services.store.release("outbox", "second")
    assert not await claim(services, "second")
    await services.store.release("outbox", "first")
    assert await claim(services, "second")


async def test_heartbeats_of_several_processes_expire(services: Services) -> None:
    async def beat(holder: str, after: timedelta) -> None:
        await services.store.add_heartbeat("serving", holder, now=NOW + after, lifetime=MINUTE)

    async def is_alive(after: timedelta) -> bool:
        return await services.store.has_heartbeat("serving", NOW + after)

    await beat("killed", timedelta())
    await beat("next", MINUTE / 2)

    assert [True, True, False] == [await is_alive(MINUTE * n) for n in (0, 1, 2)]
    assert not await services.store.has_heartbeat("relaying", NOW)
    await services.store.end_heartbeat("serving", "next")
    assert [True, False] == [await is_alive(MINUTE * n) for n in (0, 1)]
