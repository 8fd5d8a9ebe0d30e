"""Blobs from one store into another: those that are needed and not there yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from postroom.errors import MailError
from postroom.model.attachment import BlobKey
from postroom.ports.blobs import BlobStore

_AT_ONCE = 50
_BYTES_AT_ONCE = 16 * 2**20


async def copy_blobs(
    needed: AsyncIterator[tuple[BlobKey, int]],
    source: BlobStore,
    target: BlobStore,
    tell: Callable[[int], None],
) -> int:
    """Copy what is needed, compare it by its hash, and return how many there are.

    Raises:
        NotFound: the source lacks one.
        MailError: one is damaged in the source.
    """
    done = size = 0
    batch: list[BlobKey] = []
    async for key, its_size in needed:
        batch.append(key)
        size += its_size
        if len(batch) == _AT_ONCE or size >= _BYTES_AT_ONCE:
            done += await _copy(batch, source, target)
            batch, size = [], 0
            tell(done)
    return done + await _copy(batch, source, target)


async def _copy(keys: Sequence[BlobKey], source: BlobStore, target: BlobStore) -> int:
    """All at once: a disk that syncs several files at a time takes hardly longer than for one."""
    missing = await target.missing(keys) if keys else frozenset()
    copies = (_copy_one(key, source, target) for key in missing)
    for outcome in await asyncio.gather(*copies, return_exceptions=True):
        if outcome is not None:
            raise outcome
    return len(keys)


async def _copy_one(key: BlobKey, source: BlobStore, target: BlobStore) -> None:
    [stored] = await target.put([await source.read(key)])
    if stored != key:
        raise MailError(f"blob {key} is damaged in the source; `postroom verify` lists all")
