"""Spool: received bytes in memory, or in a temporary file above a size."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from postroom.blocking import in_thread
from postroom.errors import StorageFull, Unavailable

MEMORY_BYTES = 128 * 1024
MAX_BYTES_AT_ONCE = 64 * 1024 * 1024
_RELEASE: ContextVar[Callable[[], None] | None] = ContextVar("release", default=None)


def release() -> None:
    """Release the memory budget of the current request, which is going to wait."""
    if (free := _RELEASE.get()) is not None:
        free()


@dataclass(slots=True)
class SpooledBytes:
    """The bytes received so far; none are kept above `max_bytes`."""

    folder: Path
    max_bytes: int
    size: int = 0
    _tail: bytes = b""
    _file: IO[bytes] | None = None
    _failure: OSError | None = None

    @property
    def is_large(self) -> bool:
        return self._file is not None

    async def put(self, data: bytes) -> None:
        """Append bytes to the file."""
        await in_thread(self._put, data)

    def end(self, data: bytes) -> None:
        """Append the last bytes, which stay in memory."""
        self._tail = data
        self.size += len(data)

    def _put(self, data: bytes) -> None:
        self.size += len(data)
        try:
            if self.size > self.max_bytes or self._failure is not None:
                self.close()
                return
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 - closed by us
            self._file.write(data)
        except OSError as error:
            self._failure = error
            self.close()

    async def read(self) -> bytes | None:
        """All bytes; None if there are more than `max_bytes`. Raises StorageFull."""
        return await in_thread(self._read) if self.is_large else self._whole(self._tail)

    def _whole(self, data: bytes) -> bytes | None:
        if self._failure is not None:
            reason = self._failure.strerror
            raise StorageFull(f"the received bytes could not be written to disk: {reason}")
        return None if self.size > self.max_bytes else data

    def _read(self) -> bytes | None:
        assert self._file is not None
        try:
            self._file.write(self._tail)
            self._file.seek(0)
            return self._whole(self._file.read())
        except OSError as error:
            self._failure = error
            return self._whole(b"")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(slots=True)
class MemoryBudget:
    """How many bytes of spooled files are in memory at once."""

    _held: int = 0
    _next: asyncio.Lock = field(default_factory=asyncio.Lock)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def turn(
        self, spooled: SpooledBytes, within_s: float | None = None
    ) -> AsyncIterator[None]:
        """Wait until there is memory for a spooled file, in order of arrival.

        The memory is held until the block ends, or until `release` is called in it.

        Raises:
            Unavailable: there was none *within_s*.
        """
        size = min(spooled.size, MAX_BYTES_AT_ONCE) if spooled.is_large else 0
        if size:
            await self._take(size, within_s)

        def free() -> None:
            nonlocal size
            self._held -= size
            size = 0
            self._freed.set()

        before = _RELEASE.set(free)
        try:
            yield
        finally:
            _RELEASE.reset(before)
            free()

    async def _take(self, size: int, within_s: float | None) -> None:
        try:
            async with asyncio.timeout(within_s), self._next:
                while self._held + size > MAX_BYTES_AT_ONCE:
                    self._freed.clear()
                    await self._freed.wait()
                self._held += size
        except TimeoutError:
            raise Unavailable(
                "the server is at capacity; try again in 5 s", retry_after=5
            ) from None
