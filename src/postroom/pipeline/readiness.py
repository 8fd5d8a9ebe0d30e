"""Whether mail could be stored right now: found out by storing something."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from postroom.model.attachment import BlobKey
from postroom.pipeline.house import House

_PROBE_BYTES = 1024 * 1024
"""Room for an ordinary mail and what the database needs for it."""


async def check_ready(house: House) -> None:
    """Write a little to the database and to the blobs; raise what stands in the way."""
    await house.store.ping()
    keys = await house.blobs.put([secrets.token_bytes(_PROBE_BYTES)])
    await house.blobs.discard(keys, _unused)


async def _unused(_keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
    return frozenset()
