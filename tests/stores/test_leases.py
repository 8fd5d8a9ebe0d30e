"""Leases: one holder at a time, and another takes over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from postroom.pipeline.house import House

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


async def claim(house: House, holder: str, after: timedelta = timedelta(0)) -> bool:
    return await house.store.claim("outbox", holder, now=NOW + after, lasting=MINUTE)


async def test_one_of_many_gets_the_lease_and_may_renew_it(house: House) -> None:
    granted = await asyncio.gather(*(claim(house, f"p{number}") for number in range(20)))

    holder = f"p{granted.index(True)}"
    assert 1 == sum(granted)
    assert await claim(house, holder)
    assert not await claim(house, "another")


async def test_another_takes_over_when_the_lease_has_ended(house: House) -> None:
    assert await claim(house, "first")

    assert not await claim(house, "second", MINUTE - timedelta(seconds=1))
    assert await claim(house, "second", MINUTE)
    assert not await claim(house, "first", MINUTE)


async def test_a_lease_given_back_is_free_at_once(house: House) -> None:
    await claim(house, "first")

    await house.store.release("outbox", "second")
    assert not await claim(house, "second")
    await house.store.release("outbox", "first")
    assert await claim(house, "second")


async def test_many_may_attend_to_one_work_and_the_dead_do_not_count(house: House) -> None:
    async def attend(holder: str, after: timedelta) -> None:
        await house.store.attend("serving", holder, now=NOW + after, lasting=MINUTE)

    async def is_attended(after: timedelta) -> bool:
        return await house.store.is_attended("serving", NOW + after)

    await attend("killed", timedelta())
    await attend("next", MINUTE / 2)

    assert [True, True, False] == [await is_attended(MINUTE * n) for n in (0, 1, 2)]
    assert not await house.store.is_attended("relaying", NOW)
    await house.store.leave("serving", "next")
    assert [True, False] == [await is_attended(MINUTE * n) for n in (0, 1)]
