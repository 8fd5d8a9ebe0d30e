"""Whether mail could be stored right now: found out by storing something."""

from __future__ import annotations

from postroom.pipeline.house import House


async def check_ready(house: House) -> None:
    """Write a little to the database and to the blobs; raise what stands in the way."""
    await house.store.ping()
    await house.blobs.check()
