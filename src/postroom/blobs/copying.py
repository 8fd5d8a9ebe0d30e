"""Blobs from one store into another: those that are needed and not there yet."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from postroom.errors import NotFound
from postroom.model.attachment import BlobKey
from postroom.ports.blobs import BlobStore

_AT_ONCE = 50
_BYTES_AT_ONCE = 16 * 2**20


@dataclass(slots=True)
class Copied:
    """How many blobs the target has, and what is wrong with those that it has not."""

    count: int = 0
    problems: dict[BlobKey, str] = field(default_factory=dict)


async def copy_blobs(
    needed: AsyncIterator[tuple[BlobKey, int]],
    source: BlobStore,
    target: BlobStore,
    tell: Callable[[int], None],
    *,
    rereads: bool,
) -> Copied:
    """Copy what is needed and compare it by its hash; what is missing or damaged is left out.

    What the target has already must be of the right size, and if it is to be *reread*, whole.
    """
    copied, size = Copied(), 0
    batch: dict[BlobKey, int] = {}
    async for key, its_size in needed:
        batch[key] = its_size
        size += its_size
        if len(batch) == _AT_ONCE or size >= _BYTES_AT_ONCE:
            await _copy(batch, source, target, copied, rereads=rereads)
            batch, size = {}, 0
            tell(copied.count)
    await _copy(batch, source, target, copied, rereads=rereads)
    tell(copied.count)
    return copied


async def _copy(
    blobs: Mapping[BlobKey, int],
    source: BlobStore,
    target: BlobStore,
    copied: Copied,
    *,
    rereads: bool,
) -> None:
    """All at once: a disk that syncs several files at a time takes hardly longer than for one."""
    wanted = await _wanted(blobs, target, rereads=rereads)
    copies = (_copy_one(key, source, target) for key in wanted)
    outcomes = await asyncio.gather(*copies, return_exceptions=True)
    for key, outcome in zip(wanted, outcomes, strict=True):
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is not None:
            copied.problems[key] = outcome
    copied.count += len(blobs) - sum(key in copied.problems for key in blobs)


async def _wanted(
    blobs: Mapping[BlobKey, int], target: BlobStore, *, rereads: bool
) -> list[BlobKey]:
    """Those that the target lacks, or has otherwise than they were stored."""
    sizes = await target.sizes(list(blobs))
    wanted = [key for key, size in blobs.items() if sizes.get(key) != size]
    if not rereads:
        return wanted
    there = [key for key, size in blobs.items() if sizes.get(key) == size]
    damages = await asyncio.gather(*(target.damage(key, blobs[key]) for key in there))
    return wanted + [key for key, damage in zip(there, damages, strict=True) if damage]


async def _copy_one(key: BlobKey, source: BlobStore, target: BlobStore) -> str | None:
    """Copy a blob, or say what is wrong with it."""
    try:
        content = await source.read(key)
    except NotFound:
        return f"blob {key} is missing in the source"
    except OSError as error:
        return f"blob {key} cannot be read in the source: {error.strerror}"
    if hashlib.sha256(content).hexdigest() != key:
        return f"blob {key} is damaged in the source: its content is not what was stored"
    await target.put([content], anew=True)
    return None
