"""Blobs of this installation: the check that they are ours, and the removal of unused ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from postroom.errors import Conflict, MailError
from postroom.model.mail.message import BlobKey
from postroom.pipeline.services import Services
from postroom.ports.blobs import BlobStore

if TYPE_CHECKING:
    from postroom.store.store import Store

_SAMPLE_SIZE = 200


async def claim_blob_store(store: Store, blobs: BlobStore) -> None:
    """Mark the blobs as ours. Raises Conflict if they belong to another installation."""
    name = await store.ensure_installation_id()
    if await check_installation_mark(store, blobs, name) is None or blobs.mark.is_outdated:
        await blobs.mark.write(name)
        # Another installation may have marked them at the same time.
        await check_installation_mark(store, blobs, name)


async def check_installation_mark(store: Store, blobs: BlobStore, name: str | None) -> str | None:
    """The installation in the mark of the blobs; None if they have no mark and may be ours.

    Blobs have no mark if an older version wrote them, or a copy was interrupted. Raises Conflict
    if they belong to another installation.
    """
    location, owner = blobs.mark.place, await blobs.mark.read()
    if owner is not None and owner != name:
        raise Conflict(
            f"{location} holds the blobs of another installation; use another location "
            "(--data, POSTROOM_BLOBS_URL). If that installation no longer exists, or "
            "this one replaces it, "
            f"remove {location}/installation.json and try again"
        )
    if owner is None and await blobs.mark.has_blobs() and not await _has_stored_blob(store, blobs):
        raise Conflict(
            f"{location} has blobs, and none of them belongs to this installation; use an empty "
            "location (--data, POSTROOM_BLOBS_URL), or empty this one if nothing needs it any more"
        )
    return owner


async def refuse_without_database(blobs: BlobStore) -> None:
    """Refuse to create an installation where there are blobs already. Raises Conflict."""
    location = blobs.mark.place
    if await blobs.mark.read() is not None or await blobs.mark.has_blobs():
        raise Conflict(
            f"{location} has blobs, but the data folder has no postroom.db. If the database is on "
            "PostgreSQL, set POSTROOM_DATABASE_URL; if it is lost, restore a backup (`postroom "
            "restore`); for a new installation, use an empty folder (--data)"
        )


async def sweep_blobs(services: Services, *, older_than: timedelta) -> int:
    """Remove old blobs that nothing uses, and return how many. Raises Conflict."""
    await claim_blob_store(services.store, services.blobs)
    return await services.blobs.sweep(services.store.used_blobs, older_than=older_than)


async def _has_stored_blob(store: Store, blobs: BlobStore) -> bool:
    """Whether one of the first blobs that the store refers to exists; copies start with those."""
    keys: list[str] = []
    async for key, _size in store.all_blobs():
        keys.append(key)
        if len(keys) == _SAMPLE_SIZE:
            break
    return bool(keys) and bool(await blobs.sizes(keys))


log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0


async def discard_unused(services: Services, keys: Sequence[BlobKey]) -> None:
    """Remove blobs whose mail was removed; it neither fails nor takes long.

    What cannot be removed now is removed by a later sweep.
    """
    if not keys:
        return
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await claim_blob_store(services.store, services.blobs)
            await services.blobs.discard(keys, services.store.used_blobs)
    except (MailError, OSError) as error:
        reason = str(error) or "timed out"
        log.warning("blobs.removal_failed", extra={"blobs": len(keys), "error": reason})
