"""Blobs as objects in a bucket: `ab/cdef…`, named by the SHA-256 of their content.

Access is configured by the environment (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …)
or by the role of the machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import obstore
from obstore.store import S3Store

from postroom.blobs.files import missing_error
from postroom.blobs.object_requests import (
    NoResponse,
    ObjectInstallationMark,
    RequestQueue,
    no_bucket,
    object_errors,
)
from postroom.errors import NotFound, Unavailable
from postroom.model.mail.message import BlobKey
from postroom.ports.blobs import UsedBlobs

if TYPE_CHECKING:
    from obstore import ObjectMeta

_TIMEOUTS: dict[str, Any] = {
    "timeout": "60s",
    "connect_timeout": "5s",
    "retry_config": {"max_retries": 4, "retry_timeout": timedelta(seconds=15)},
}
"""Not as `client_options`, which would override `AWS_ALLOW_HTTP` and others in the environment."""

_READ_TIMEOUTS: dict[str, Any] = {
    **_TIMEOUTS,
    "read_timeout": "5s",
    "retry_config": {"max_retries": 4, "retry_timeout": timedelta(seconds=9)},
}
"""For reads. Not for writes: a server does not respond until it has received everything."""

_WRITE_S = 15.0
_WRITE_BYTES_PER_S = 16 * 1024
"""A write times out after this, plus its size at this rate."""

_CHUNK_BYTES = 1024 * 1024
_PART_BYTES = 8 * 1024 * 1024
"""Larger blobs are uploaded in parts of this size."""

_FRESH = timedelta(hours=6)
"""A newer blob need not be renewed when it is put again: no sweep removes it for long."""

_GONE = "gone/"
_NOTHING = "nothing"
"""A prefix without objects."""

_PROBE_BYTES = 16
_PROBE_S = 10.0
_PROBED_S = 60.0
"""A write within this time shows that the bucket is writable."""

_BATCH = 500
_CONCURRENT_WRITES = 8
_CONCURRENT_REQUESTS = 32
"""Copies and HEAD requests transfer no content, so more of each can run."""


class ObjectBlobs:
    """Content-addressed objects of one bucket.

    A removal first moves an object and then checks again whether it is in use, as with files.
    """

    def __init__(
        self,
        store: S3Store,
        public: S3Store | None = None,
        reading: S3Store | None = None,
        place: str = "the bucket",
    ) -> None:
        self._store, self._public, self._reading = store, public or store, reading or store
        self.mark = ObjectInstallationMark(self._store, self._reading, place)
        self._writers = RequestQueue(_CONCURRENT_WRITES)
        self._copies = asyncio.Semaphore(_CONCURRENT_REQUESTS)
        self._heads = asyncio.Semaphore(_CONCURRENT_REQUESTS)
        self._written_s = -math.inf

    @classmethod
    def at(cls, url: str, public_url: str | None = None) -> ObjectBlobs:
        """The blobs under `s3://bucket/prefix`; links use the server at *public_url*."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        open_store = partial(S3Store, bucket, prefix=prefix or None)
        store, reading = open_store(**_TIMEOUTS), open_store(**_READ_TIMEOUTS)
        public = (
            None if public_url is None else open_store(aws_endpoint_url_s3=public_url, **_TIMEOUTS)
        )
        return cls(store, public, reading, url.rstrip("/"))

    async def put(self, contents: Iterable[bytes], *, overwrite: bool = False) -> list[BlobKey]:
        pairs = [(hashlib.sha256(content).hexdigest(), content) for content in contents]
        left = iter(dict(pairs).items())

        async def put_each() -> None:
            for key, content in left:
                await self._put(key, content, overwrite=overwrite)

        with self._writers.circuit():
            writers = min(_CONCURRENT_WRITES, len(pairs))
            await asyncio.gather(*(put_each() for _ in range(writers)))
        return [key for key, _ in pairs]

    async def missing(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        return frozenset(keys) - (await self.sizes(keys)).keys()

    async def sizes(self, keys: Sequence[BlobKey]) -> dict[BlobKey, int]:
        found = await asyncio.gather(*(self._head(_path(key)) for key in keys))
        if None in found:
            await self._check_bucket()
        return {key: meta["size"] for key, meta in zip(keys, found, strict=True) if meta}

    async def read(self, key: BlobKey, *, offset: int = 0, size: int | None = None) -> bytes:
        for path in (_path(key), _GONE + _path(key), _path(key)):
            with suppress(FileNotFoundError):
                async with self._with_reason():
                    return await self._read(path, offset, size)
        await self._check_bucket()
        raise missing_error(key)

    async def stream(self, key: BlobKey) -> AsyncIterator[bytes]:
        offset = 0
        while chunk := await self.read(key, offset=offset, size=_CHUNK_BYTES):
            yield chunk
            offset += len(chunk)

    async def find_damage(self, key: BlobKey, size: int) -> str | None:
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
        for start in range(0, len(keys), _BATCH):
            await self._discard(keys[start : start + _BATCH], used)

    async def sweep(self, used: UsedBlobs, *, older_than: timedelta) -> int:
        before = datetime.now(UTC) - older_than
        removed = 0
        async for keys in self._listed(_GONE, datetime.max.replace(tzinfo=UTC)):
            await self._finish_removal(keys, await used(keys))
        async for keys in self._listed("", before):
            in_use = await used(keys)
            removed += await self._discard([key for key in keys if key not in in_use], used)
        return removed

    async def check(self) -> None:
        if time.monotonic() - self._written_s < _PROBED_S:
            return
        with self._writers.circuit(), object_errors():
            async with asyncio.timeout(_PROBE_S):
                content = secrets.token_bytes(_PROBE_BYTES)
                key = hashlib.sha256(content).hexdigest()
                await self._put(key, content, overwrite=False)
                with suppress(Unavailable):
                    await self._delete([_path(key)])

    async def link(self, key: BlobKey, *, lifetime: timedelta) -> str:
        """A signed URL of the content that is valid for a limited time."""
        if await self.missing([key]):
            raise missing_error(key)
        with object_errors():
            return await obstore.sign_async(self._public, "GET", _path(key), lifetime)

    async def _put(self, key: BlobKey, content: bytes, *, overwrite: bool) -> None:
        """Write a blob unless a fresh one exists."""
        async with self._writers.slot():
            with self._writing():
                meta = None if overwrite else await self._head(_path(key))
                if (
                    meta is None
                    or meta["size"] != len(content)
                    or datetime.now(UTC) - meta["last_modified"] >= _FRESH
                ):
                    await self._write(key, content)

    async def _write(self, key: BlobKey, content: bytes) -> None:
        async with asyncio.timeout(_WRITE_S + len(content) / _WRITE_BYTES_PER_S):
            await obstore.put_async(
                self._store,
                _path(key),
                content,
                use_multipart=len(content) > _PART_BYTES,
                chunk_size=_PART_BYTES,
            )
        self._written_s = time.monotonic()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Reset the time of the last write on errors; FileNotFoundError means a missing bucket."""
        try:
            with object_errors():
                yield
        except BaseException as error:
            self._written_s = -math.inf
            if isinstance(error, FileNotFoundError):
                raise no_bucket(error) from error
            raise

    async def _head(self, path: str) -> ObjectMeta | None:
        async with self._heads:
            with suppress(FileNotFoundError):
                async with self._with_reason():
                    return await obstore.head_async(self._reading, path)
        return None

    @asynccontextmanager
    async def _with_reason(self) -> AsyncIterator[None]:
        """Find the reason of a refused HEAD, whose response has no body."""
        try:
            with object_errors():
                yield
        except NoResponse:
            raise
        except Unavailable:
            await self._check_bucket()
            raise

    async def _check_bucket(self) -> None:
        """Raise the error of the bucket, if it has one."""
        with object_errors():
            await obstore.list_with_delimiter_async(self._reading, _NOTHING)

    async def _read(self, path: str, offset: int, size: int | None) -> bytes:
        length = (await obstore.head_async(self._reading, path))["size"]
        end = length if size is None else min(length, offset + size)
        if offset >= end:
            return b""
        found = await obstore.get_range_async(self._reading, path, start=offset, end=end)
        return bytes(found)

    async def _discard(self, keys: Sequence[BlobKey], used: UsedBlobs) -> int:
        """Remove blobs that are not in use, and return how many."""
        copied = await asyncio.gather(*(self._copy(_path(key), _GONE + _path(key)) for key in keys))
        aside = [key for key, is_there in zip(keys, copied, strict=True) if is_there]
        await self._delete([_path(key) for key in aside])
        in_use = await used(aside) if aside else frozenset()
        await self._finish_removal(aside, in_use)
        return len(frozenset(aside) - in_use)

    async def _finish_removal(self, keys: Sequence[BlobKey], in_use: frozenset[BlobKey]) -> None:
        """Delete blobs that were set aside, and restore those in use."""
        lost = await self.missing([key for key in keys if key in in_use])
        await asyncio.gather(*(self._copy(_GONE + _path(key), _path(key)) for key in lost))
        await self._delete([_GONE + _path(key) for key in keys])

    async def _copy(self, path: str, to: str) -> bool:
        """Copy an object; False if it does not exist."""
        async with self._copies:
            with suppress(FileNotFoundError), object_errors():
                await obstore.copy_async(self._store, path, to)
                return True
        return False

    async def _delete(self, paths: Sequence[str]) -> None:
        with suppress(FileNotFoundError), object_errors():
            if paths:
                await obstore.delete_async(self._store, paths)

    async def _listed(self, prefix: str, before: datetime) -> AsyncIterator[list[BlobKey]]:
        """The keys of older blobs, in batches."""
        with object_errors():
            async for part in obstore.list(self._store, prefix or None, chunk_size=_BATCH):
                keys = [
                    key
                    for entry in part
                    if entry["last_modified"] < before and (key := _key(entry["path"], prefix))
                ]
                if keys:
                    yield keys


def _path(key: BlobKey) -> str:
    return f"{key[:2]}/{key[2:]}"


def _key(path: str, prefix: str) -> BlobKey | None:
    """The key of an object; None if it is not a blob."""
    folder, _, name = path.removeprefix(prefix).partition("/")
    return folder + name if len(folder) == 2 and len(name) == 62 else None
