"""Bytes that are still coming: in memory while they are few, above that in a file without a name.

Whoever sends without ever ending holds no more of our memory than anybody else.
"""

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

KEPT_BYTES = 128 * 1024
MOST_BYTES_AT_ONCE = 64 * 1024 * 1024
_LET_GO: ContextVar[Callable[[], None] | None] = ContextVar("let_go", default=None)


def let_go() -> None:
    """Leave the memory of what was brought to others, for who brought it will wait for a while."""
    if (free := _LET_GO.get()) is not None:
        free()


@dataclass(slots=True)
class Kept:
    """What has come so far; of more than `most` bytes nothing is kept."""

    folder: Path
    most: int
    size: int = 0
    _tail: bytes = b""
    _file: IO[bytes] | None = None
    _failure: OSError | None = None

    @property
    def is_large(self) -> bool:
        return self._file is not None

    async def put(self, data: bytes) -> None:
        """Put a piece aside that is too large for memory, together with others like it."""
        await in_thread(self._put, data)

    def end(self, data: bytes) -> None:
        """The last piece, which stays in memory."""
        self._tail = data
        self.size += len(data)

    def _put(self, data: bytes) -> None:
        self.size += len(data)
        try:
            if self.size > self.most or self._failure is not None:
                self.close()
                return
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 - closed by us
            self._file.write(data)
        except OSError as error:
            self._failure = error
            self.close()

    async def read(self) -> bytes | None:
        """All of it; None if it was more than we take. Raises StorageFull."""
        return await in_thread(self._read) if self.is_large else self._whole(self._tail)

    def _whole(self, data: bytes) -> bytes | None:
        if self._failure is not None:
            reason = self._failure.strerror
            raise StorageFull(f"what came could not be kept until it was whole: {reason}")
        return None if self.size > self.most else data

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
        """Let the file go."""
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(slots=True)
class Memory:
    """How much of what was large is in memory at once."""

    _held: int = 0
    _next: asyncio.Lock = field(default_factory=asyncio.Lock)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def turn(self, kept: Kept, within_s: float | None = None) -> AsyncIterator[None]:
        """Wait until there is memory for a large one, in the order they came; a small one goes.

        It is held until the block ends, or until `let_go` is called in it.

        Raises:
            Unavailable: there was none *within_s*.
        """
        size = min(kept.size, MOST_BYTES_AT_ONCE) if kept.is_large else 0
        if size:
            await self._take(size, within_s)

        def free() -> None:
            nonlocal size
            self._held -= size
            size = 0
            self._freed.set()

        before = _LET_GO.set(free)
        try:
            yield
        finally:
            _LET_GO.reset(before)
            free()

    async def _take(self, size: int, within_s: float | None) -> None:
        try:
            async with asyncio.timeout(within_s), self._next:
                while self._held + size > MOST_BYTES_AT_ONCE:
                    self._freed.clear()
                    await self._freed.wait()
                self._held += size
        except TimeoutError:
            raise Unavailable("too much comes in just now; try again", retry_after=5) from None
