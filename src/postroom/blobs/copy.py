"""Copies blobs from one store to another."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from postroom.errors import NotFound
from postroom.model.mail.message import BlobKey
from postroom.ports.blobs import BlobStore

_BATCH = 50
_BATCH_BYTES = 16 * 2**20


@dataclass(slots=True)
class CopyResult:
    """The number of blobs in the target, and why others are not."""

    count: int = 0
    problems: dict[BlobKey, str] = field(default_factory=dict)


async def copy_blobs(
    needed: AsyncIterator[tuple[BlobKey, int]],
    source: BlobStore,
    target: BlobStore,
    progress: Callable[[int], None],
    *,
    rereads: bool,
) -> CopyResult:
    """Copy blobs that the target does not have, and verify their hashes.

    Blobs in the target are compared by size, and with *rereads* also by content.
    """
    copied = CopyResult()
    async for blobs in _batches(needed):
        keys = await _to_copy(blobs, target, rereads=rereads)
        # Concurrently: a disk syncs several files in hardly more time than one.
        copies = (_copy_one(key, source, target) for key in keys)
        outcomes = await asyncio.gather(*copies, return_exceptions=True)
        for key, outcome in zip(keys, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome is not None:
                copied.problems[key] = outcome
        copied.count += len(blobs) - sum(key in copied.problems for key in blobs)
        progress(copied.count)
    return copied


async def _batches(
    needed: AsyncIterator[tuple[BlobKey, int]],
) -> AsyncIterator[dict[BlobKey, int]]:
    """Blobs with their sizes, as many as are copied at once; the last batch can be empty."""
    batch: dict[BlobKey, int] = {}
    async for key, size in needed:
        batch[key] = size
        if len(batch) == _BATCH or sum(batch.values()) >= _BATCH_BYTES:
            yield batch
            batch = {}
    yield batch


async def _to_copy(
    blobs: Mapping[BlobKey, int], target: BlobStore, *, rereads: bool
) -> list[BlobKey]:
    """The blobs that the target does not have, or has with another size or content."""
    sizes = await target.sizes(list(blobs))
    missing = [key for key, size in blobs.items() if sizes.get(key) != size]
    if not rereads:
        return missing
    there = [key for key, size in blobs.items() if sizes.get(key) == size]
    damages = await asyncio.gather(*(target.find_damage(key, blobs[key]) for key in there))
    return missing + [key for key, damage in zip(there, damages, strict=True) if damage]


async def _copy_one(key: BlobKey, source: BlobStore, target: BlobStore) -> str | None:
    """Copy a blob; a message if it is missing or damaged."""
    try:
        content = await source.read(key)
    except NotFound:
        return f"blob {key} is missing in the source"
    except OSError as error:
        return f"blob {key} cannot be read in the source: {error.strerror}"
    if hashlib.sha256(content).hexdigest() != key:
        return f"blob {key} is damaged in the source: its content is not what was stored"
    await target.put([content], overwrite=True)
    return None
