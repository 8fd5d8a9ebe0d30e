"""Blobs as objects in a bucket: `ab/cdef…`, named by the SHA-256 of what they hold.

The bucket's own words (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …) say how it is
reached, or the role of the machine does.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import obstore
from obstore import exceptions as said
from obstore.store import S3Store

from postroom.errors import NotFound, Unavailable
from postroom.model.attachment import BlobKey
from postroom.ports.blobs import UsedBlobs

log = logging.getLogger(__name__)

_PATIENCE: dict[str, Any] = {
    "timeout": "60s",
    "connect_timeout": "5s",
    "retry_config": {"max_retries": 4, "retry_timeout": timedelta(seconds=15)},
}
"""Not as `client_options`: those would hide `AWS_ALLOW_HTTP` and its like in the environment."""

_CHUNK_BYTES = 1024 * 1024
_PART_BYTES = 8 * 1024 * 1024
"""What is larger is sent in parts of this size."""

_FRESH = timedelta(hours=6)
"""A sweep leaves newer blobs alone, by far: to put one of them again need not renew it."""

_GONE = "gone/"
_PROBE = "probe"
_PROBE_S = 10.0
_PROBED_S = 60.0
"""What was written so long ago still shows that the bucket takes what we write."""

_SILENT = "the object store does not answer; try again"
_AT_ONCE = 500
_IN_FLIGHT = 8


class ObjectBlobs:
    """Content-addressed objects of one bucket.

    Removal first sets an object aside and then looks again, like that of files: one that was put
    once more in the meantime stays, and one that is needed after all comes back.
    """

    def __init__(self, store: S3Store, public: S3Store | None = None) -> None:
        self._store, self._public = store, public or store
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._written_s = -math.inf

    @classmethod
    def at(cls, url: str, public_url: str | None = None) -> ObjectBlobs:
        """The blobs under `s3://bucket/prefix`; links lead to the server at *public_url*."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        store = S3Store(bucket, prefix=prefix or None, **_PATIENCE)
        if public_url is None:
            return cls(store)
        public = S3Store(bucket, prefix=prefix or None, aws_endpoint_url_s3=public_url, **_PATIENCE)
        return cls(store, public)

    async def put(self, contents: Iterable[bytes]) -> list[BlobKey]:
        pairs = [(hashlib.sha256(content).hexdigest(), content) for content in contents]
        await asyncio.gather(*(self._put(key, content) for key, content in dict(pairs).items()))
        return [key for key, _ in pairs]

    async def missing(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        found = await asyncio.gather(*(self._written_at(_path(key)) for key in keys))
        return frozenset(key for key, at in zip(keys, found, strict=True) if at is None)

    async def read(self, key: BlobKey, *, offset: int = 0, size: int | None = None) -> bytes:
        for path in (_path(key), _GONE + _path(key), _path(key)):
            with _object_errors(), suppress(FileNotFoundError):
                return await self._read(path, offset, size)
        raise _is_missing(key)

    async def stream(self, key: BlobKey) -> AsyncIterator[bytes]:
        offset = 0
        while chunk := await self.read(key, offset=offset, size=_CHUNK_BYTES):
            yield chunk
            offset += len(chunk)

    async def damage(self, key: BlobKey, size: int) -> str | None:
        digest, length = hashlib.sha256(), 0
        try:
            async for chunk in self.stream(key):
                digest.update(chunk)
                length += len(chunk)
        except NotFound:
            return f"blob {key} is missing"
        if digest.hexdigest() != key or length != size:
            return f"blob {key} is damaged: its content is not what was stored"
        return None

    async def discard(self, keys: Sequence[BlobKey], used: UsedBlobs) -> None:
        for key in keys:
            await self._move(_path(key), _GONE + _path(key))
        in_use = await used(keys) if keys else frozenset()
        for key in keys:
            await self._settle(key, in_use)

    async def sweep(self, used: UsedBlobs, *, older_than: timedelta) -> int:
        before = datetime.now(UTC) - older_than
        removed = 0
        async for keys in self._listed(_GONE, datetime.max.replace(tzinfo=UTC)):
            in_use = await used(keys)
            for key in keys:
                await self._settle(key, in_use)
        async for keys in self._listed("", before):
            in_use = await used(keys)
            unused = [key for key in keys if key not in in_use]
            await self.discard(unused, used)
            removed += len(await self.missing(unused))
        return removed

    async def check(self) -> None:
        if time.monotonic() - self._written_s < _PROBED_S:
            return
        try:
            async with asyncio.timeout(_PROBE_S):
                with self._writing():
                    await obstore.put_async(self._store, _PROBE, b"", mode="overwrite")
        except TimeoutError as error:
            raise _refused(_SILENT, error) from error

    async def link(self, key: BlobKey, *, lasting: timedelta) -> str:
        """An address under which the content can be fetched for a while, without us."""
        if await self.missing([key]):
            raise _is_missing(key)
        with _object_errors():
            return await obstore.sign_async(self._public, "GET", _path(key), lasting)

    async def _put(self, key: BlobKey, content: bytes) -> None:
        async with self._slots:
            written_at = await self._written_at(_path(key))
            if written_at is not None and datetime.now(UTC) - written_at < _FRESH:
                return
            is_new = written_at is None and len(content) <= _PART_BYTES
            with self._writing(), suppress(said.AlreadyExistsError):
                await obstore.put_async(
                    self._store,
                    _path(key),
                    content,
                    mode="create" if is_new else "overwrite",
                    use_multipart=len(content) > _PART_BYTES,
                    chunk_size=_PART_BYTES,
                )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Remember when the bucket took something; it finds no place only if there is no bucket."""
        is_taken = False
        try:
            with _object_errors():
                yield
            is_taken = True
        except FileNotFoundError as error:
            raise _no_bucket(error) from error
        finally:
            self._written_s = time.monotonic() if is_taken else -math.inf

    async def _written_at(self, path: str) -> datetime | None:
        with _object_errors(), suppress(FileNotFoundError):
            return (await obstore.head_async(self._store, path))["last_modified"]
        return None

    async def _read(self, path: str, offset: int, size: int | None) -> bytes:
        length = (await obstore.head_async(self._store, path))["size"]
        end = length if size is None else min(length, offset + size)
        if offset >= end:
            return b""
        found = await obstore.get_range_async(self._store, path, start=offset, end=end)
        return bytes(found)

    async def _move(self, path: str, to: str) -> None:
        with _object_errors(), suppress(FileNotFoundError):
            await obstore.copy_async(self._store, path, to)
            await obstore.delete_async(self._store, path)

    async def _settle(self, key: BlobKey, in_use: frozenset[BlobKey]) -> None:
        """Remove a blob that was set aside, or bring it back if it is needed after all."""
        aside = _GONE + _path(key)
        if key in in_use and await self._written_at(_path(key)) is None:
            await self._move(aside, _path(key))
            return
        with _object_errors(), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, aside)

    async def _listed(self, prefix: str, before: datetime) -> AsyncIterator[list[BlobKey]]:
        """The keys of blobs that are older, some at a time."""
        with _object_errors():
            async for part in obstore.list(self._store, prefix or None, chunk_size=_AT_ONCE):
                keys = [
                    key
                    for entry in part
                    if entry["last_modified"] < before and (key := _key(entry["path"], prefix))
                ]
                if keys:
                    yield keys


def _is_missing(key: BlobKey) -> NotFound:
    return NotFound(f"the content {key[:12]}… is missing from the blob store")


def _path(key: BlobKey) -> str:
    return f"{key[:2]}/{key[2:]}"


def _key(path: str, prefix: str) -> BlobKey | None:
    """The key of an object; None if it is not one of ours, or set aside."""
    folder, _, name = path.removeprefix(prefix).partition("/")
    return folder + name if len(folder) == 2 and len(name) == 62 else None


@contextmanager
def _object_errors() -> Iterator[None]:
    """Turn what the bucket says into what we say; what is missing or there is for the caller.

    All of it passes once somebody has mended the bucket, so whoever asks may come again.
    """
    try:
        yield
    except (FileNotFoundError, said.AlreadyExistsError):
        raise
    except (said.PermissionDeniedError, said.UnauthenticatedError) as error:
        words = "the object store refused our login; check its key and policy"
        raise _refused(words, error) from error
    except said.BaseError as error:
        if "NoSuchBucket" in str(error):
            raise _no_bucket(error) from error
        raise _refused(_SILENT, error) from error


def _no_bucket(error: Exception) -> Unavailable:
    return _refused("there is no such bucket; make it, or correct POSTROOM_BLOBS_URL", error)


def _refused(words: str, error: Exception) -> Unavailable:
    """What to do, for the caller; the reason, which goes on for pages, for the log."""
    log.warning("objects.refused", extra={"error": str(error).partition("\n\nDebug")[0][:1000]})
    return Unavailable(words, retry_after=2)
