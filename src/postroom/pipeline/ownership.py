"""Whose blobs these are: a house uses and removes its own and nobody else's.

A sweep removes what *one* database does not need, so two houses that shared a place would remove
each other's mail. That is why the name of a house stands beside its blobs, and each copy of a
house has a name of its own.
"""

from __future__ import annotations

from datetime import timedelta

from postroom.errors import Conflict
from postroom.pipeline.house import House
from postroom.ports.blobs import BlobStore
from postroom.ports.store import KnowsItsState

_ASKED_FOR = 200


async def own_blobs(store: KnowsItsState, blobs: BlobStore) -> None:
    """Make sure that the blobs are ours, and mark them where nobody has.

    Raises:
        Conflict: they are those of another house.
    """
    house = await store.name_house()
    if await check_owner(store, blobs, house) is None:
        await blobs.mark.write(house)
        await check_owner(store, blobs, house)  # another house may have been there meanwhile


async def check_owner(store: KnowsItsState, blobs: BlobStore, house: str | None) -> str | None:
    """Whose the blobs are: this house's, or nobody's, if there are none or some of the store's.

    Blobs without a mark are from before there were marks, or from a copy that was interrupted.

    Raises:
        Conflict: they are those of another house.
    """
    place, owner = blobs.mark.place, await blobs.mark.read()
    if owner is not None and owner != house:
        raise Conflict(
            f"{place} holds the blobs of another house; give this one a place of its own "
            "(--data, POSTROOM_BLOBS_URL). Only if that house is no more, or this one was brought "
            f"back in its place, remove {place}/.house and try again"
        )
    if owner is None and await blobs.mark.has_blobs() and not await _needs_some(store, blobs):
        raise Conflict(
            f"{place} has blobs and none that this house needs: they are those of another. Name an "
            "empty place (--data, POSTROOM_BLOBS_URL), or empty this one if its house is no more"
        )
    return owner


async def refuse_without_database(blobs: BlobStore) -> None:
    """Make no new house where there are blobs already. Raises Conflict."""
    place = blobs.mark.place
    if await blobs.mark.read() is not None or await blobs.mark.has_blobs():
        raise Conflict(
            f"{place} holds the blobs of a house whose postroom.db is not in the data folder. If "
            "it is on PostgreSQL, set POSTROOM_DATABASE_URL; if its database is lost, bring back a "
            "backup (`postroom restore`); for a new house, name an empty folder with --data"
        )


async def sweep_blobs(house: House, *, older_than: timedelta) -> int:
    """Remove our old blobs that nothing uses, and return how many. Raises Conflict."""
    await own_blobs(house.store, house.blobs)
    return await house.blobs.sweep(house.store.used_blobs, older_than=older_than)


async def _needs_some(store: KnowsItsState, blobs: BlobStore) -> bool:
    """Whether any of the first blobs that a store needs is there; copies begin with the same."""
    keys: list[str] = []
    async for key, _size in store.every_blob():
        keys.append(key)
        if len(keys) == _ASKED_FOR:
            break
    return bool(keys) and bool(await blobs.sizes(keys))
