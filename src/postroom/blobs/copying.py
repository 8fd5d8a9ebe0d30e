"""Blobs from one store into another: those that are needed and not there yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from postroom.errors import MailError
from postroom.model.attachment import BlobKey
from postroom.ports.blobs import BlobStore

_AT_ONCE = 50


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
    done = 0
    batch: list[BlobKey] = []
    async for key, _ in needed:
        batch.append(key)
        if len(batch) == _AT_ONCE:
            done += await _copy(batch, source, target)
            batch = []
            tell(done)
    return done + await _copy(batch, source, target)


async def _copy(keys: Sequence[BlobKey], source: BlobStore, target: BlobStore) -> int:
    missing = await target.missing(keys) if keys else frozenset()
    for key in missing:
        [stored] = await target.put([await source.read(key)])
        if stored != key:
            raise MailError(f"blob {key} is damaged in the source; `postroom verify` lists all")
    return len(keys)
