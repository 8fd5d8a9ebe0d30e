"""Blobs as objects in a bucket: `ab/cdef…`, named by the SHA-256 of what they hold.

The bucket's own words (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …) say how it is
reached, or the role of the machine does.
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

from postroom.blobs.line import Line
from postroom.blobs.object_errors import Silent, no_bucket, object_errors
from postroom.blobs.object_mark import ObjectMark
from postroom.errors import NotFound, Unavailable
from postroom.model.attachment import BlobKey
from postroom.ports.blobs import UsedBlobs

if TYPE_CHECKING:
    from obstore import ObjectMeta

_PATIENCE: dict[str, Any] = {
    "timeout": "60s",
    "connect_timeout": "5s",
    "retry_config": {"max_retries": 4, "retry_timeout": timedelta(seconds=15)},
}
"""Not as `client_options`: those would hide `AWS_ALLOW_HTTP` and its like in the environment."""

_IMPATIENCE: dict[str, Any] = {
    **_PATIENCE,
    "read_timeout": "5s",
    "retry_config": {"max_retries": 4, "retry_timeout": timedelta(seconds=9)},
}
"""For what is only read: so long a silence, twice, and nobody waits any more.

Not for what is written: there, the server is silent until it has got all of it.
"""

_WRITE_S = 15.0
_WRITE_BYTES_PER_S = 16 * 1024
"""What takes longer than that, and this many bytes a second, is silence."""

_CHUNK_BYTES = 1024 * 1024
_PART_BYTES = 8 * 1024 * 1024
"""What is larger is sent in parts of this size."""

_FRESH = timedelta(hours=6)
"""A sweep leaves newer blobs alone, by far: to put one of them again need not renew it."""

_GONE = "gone/"
_NOTHING = "nothing"
"""There is never anything below this."""

_PROBE_BYTES = 16
_PROBE_S = 10.0
_PROBED_S = 60.0
"""What was written so long ago still shows that the bucket takes what we write."""

_AT_ONCE = 500
_IN_FLIGHT = 8
_EMPTY_IN_FLIGHT = 32
"""More, of each kind, where no bytes pass through us."""


class ObjectBlobs:
    """Content-addressed objects of one bucket.

    Removal first sets an object aside and then looks again, like that of files: one that was put
    once more in the meantime stays, and one that is needed after all comes back.
    """

    def __init__(
        self,
        store: S3Store,
        public: S3Store | None = None,
        reading: S3Store | None = None,
        place: str = "the bucket",
    ) -> None:
        self._store, self._public, self._reading = store, public or store, reading or store
        self.mark = ObjectMark(self._store, self._reading, place)
        self._writers = Line(_IN_FLIGHT)
        self._copies = asyncio.Semaphore(_EMPTY_IN_FLIGHT)
        self._heads = asyncio.Semaphore(_EMPTY_IN_FLIGHT)
        self._written_s = -math.inf

    @classmethod
    def at(cls, url: str, public_url: str | None = None) -> ObjectBlobs:
        """The blobs under `s3://bucket/prefix`; links lead to the server at *public_url*."""
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        reached = partial(S3Store, bucket, prefix=prefix or None)
        store, reading = reached(**_PATIENCE), reached(**_IMPATIENCE)
        public = store
        if public_url is not None:
            public = reached(aws_endpoint_url_s3=public_url, **_PATIENCE)
        return cls(store, public, reading, url.rstrip("/"))

    async def put(self, contents: Iterable[bytes], *, anew: bool = False) -> list[BlobKey]:
        pairs = [(hashlib.sha256(content).hexdigest(), content) for content in contents]
        left = iter(dict(pairs).items())
        with self._writers.asking():
            lines = min(_IN_FLIGHT, len(pairs))
            await asyncio.gather(*(self._put_each(left, anew=anew) for _ in range(lines)))
        return [key for key, _ in pairs]

    async def missing(self, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
        return frozenset(keys) - (await self.sizes(keys)).keys()

    async def sizes(self, keys: Sequence[BlobKey]) -> dict[BlobKey, int]:
        found = await asyncio.gather(*(self._head(_path(key)) for key in keys))
        if None in found:
            await self._look_for_bucket()
        return {key: meta["size"] for key, meta in zip(keys, found, strict=True) if meta}

    async def read(self, key: BlobKey, *, offset: int = 0, size: int | None = None) -> bytes:
        for path in (_path(key), _GONE + _path(key), _path(key)):
            with suppress(FileNotFoundError):
                async with self._worded():
                    return await self._read(path, offset, size)
        await self._look_for_bucket()
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
        for start in range(0, len(keys), _AT_ONCE):
            await self._discard(keys[start : start + _AT_ONCE], used)

    async def sweep(self, used: UsedBlobs, *, older_than: timedelta) -> int:
        before = datetime.now(UTC) - older_than
        removed = 0
        async for keys in self._listed(_GONE, datetime.max.replace(tzinfo=UTC)):
            await self._settle(keys, await used(keys))
        async for keys in self._listed("", before):
            in_use = await used(keys)
            removed += await self._discard([key for key in keys if key not in in_use], used)
        return removed

    async def check(self) -> None:
        if time.monotonic() - self._written_s < _PROBED_S:
            return
        with self._writers.asking(), object_errors():
            async with asyncio.timeout(_PROBE_S):
                content = secrets.token_bytes(_PROBE_BYTES)
                key = hashlib.sha256(content).hexdigest()
                await self._put(key, content, anew=False)
                with suppress(Unavailable):
                    await self._delete([_path(key)])

    async def link(self, key: BlobKey, *, lasting: timedelta) -> str:
        """An address under which the content can be fetched for a while, without us."""
        if await self.missing([key]):
            raise _is_missing(key)
        with object_errors():
            return await obstore.sign_async(self._public, "GET", _path(key), lasting)

    async def _put_each(self, left: Iterator[tuple[BlobKey, bytes]], *, anew: bool) -> None:
        for key, content in left:
            await self._put(key, content, anew=anew)

    async def _put(self, key: BlobKey, content: bytes, *, anew: bool) -> None:
        """Write a blob that is not there; to write it over another of its name does no harm."""
        async with self._writers.turn():
            with self._writing():
                meta = None if anew else await self._head(_path(key))
                if meta is None or not _is_fresh(meta, len(content)):
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
        """Forget that the bucket took something if it does not; only a bucket can be missing."""
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
                async with self._worded():
                    return await obstore.head_async(self._reading, path)
        return None

    @asynccontextmanager
    async def _worded(self) -> AsyncIterator[None]:
        """Ask for the reason if a HEAD is refused."""
        try:
            with object_errors():
                yield
        except Silent:
            raise
        except Unavailable:
            await self._look_for_bucket()
            raise

    async def _look_for_bucket(self) -> None:
        """Raise what is wrong with the bucket, if something is: a HEAD has no words for that."""
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
        """Set blobs aside, look again, and return how many went."""
        copied = await asyncio.gather(*(self._copy(_path(key), _GONE + _path(key)) for key in keys))
        aside = [key for key, is_there in zip(keys, copied, strict=True) if is_there]
        await self._delete([_path(key) for key in aside])
        in_use = await used(aside) if aside else frozenset()
        await self._settle(aside, in_use)
        return len(frozenset(aside) - in_use)

    async def _settle(self, keys: Sequence[BlobKey], in_use: frozenset[BlobKey]) -> None:
        """Remove blobs that were set aside, and bring those back that are needed after all."""
        lost = await self.missing([key for key in keys if key in in_use])
        await asyncio.gather(*(self._copy(_GONE + _path(key), _path(key)) for key in lost))
        await self._delete([_GONE + _path(key) for key in keys])

    async def _copy(self, path: str, to: str) -> bool:
        """Copy an object; false if there is none."""
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
        """The keys of blobs that are older, some at a time."""
        with object_errors():
            async for part in obstore.list(self._store, prefix or None, chunk_size=_AT_ONCE):
                keys = [
                    key
                    for entry in part
                    if entry["last_modified"] < before and (key := _key(entry["path"], prefix))
                ]
                if keys:
                    yield keys


def _is_fresh(meta: ObjectMeta, size: int) -> bool:
    return meta["size"] == size and datetime.now(UTC) - meta["last_modified"] < _FRESH


def _is_missing(key: BlobKey) -> NotFound:
    return NotFound(f"the content {key[:12]}… is missing from the blob store")


def _path(key: BlobKey) -> str:
    return f"{key[:2]}/{key[2:]}"


def _key(path: str, prefix: str) -> BlobKey | None:
    """The key of an object; None if it is not one of ours, or set aside."""
    folder, _, name = path.removeprefix(prefix).partition("/")
    return folder + name if len(folder) == 2 and len(name) == 62 else None
