"""What comes after DATA: in memory while it is small, and in a file that has no name above that.

Whoever sends without ever ending holds no more of our memory than anybody else.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from postroom.blocking import in_thread
from postroom.errors import StorageFull
from postroom.surfaces.smtp.wire import Wire

KEPT_BYTES = 128 * 1024
MOST_BYTES_AT_ONCE = 64 * 1024 * 1024
_END = b"\r\n.\r\n"


@dataclass(slots=True)
class Spool:
    """The bytes of one mail as they come."""

    folder: Path
    most: int
    size: int = 0
    _tail: bytes = b""
    _file: IO[bytes] | None = None
    _failure: OSError | None = None

    @property
    def is_large(self) -> bool:
        return self._file is not None

    async def fill(self, wire: Wire, idle_s: float) -> None:
        """Take everything up to the dot. Raises what `Wire.more` raises."""
        buffer, start = wire.buffer, 0
        while (end := self._end(buffer, start)) < 0:
            if len(buffer) > KEPT_BYTES:
                begun = bytes(buffer[: -len(_END)])
                del buffer[: len(begun)]
                await in_thread(self._add, begun)
                start = 0
                continue
            start = max(0, len(buffer) - len(_END))
            await wire.more(idle_s)
        self._tail = bytes(buffer[:end])
        del buffer[: end + 3]
        self.size += end

    def _end(self, buffer: bytearray, start: int) -> int:
        """Where the line with the dot begins; -1 if it has not come yet."""
        if not self.size and buffer.startswith(_END[2:]):
            return 0
        found = buffer.find(_END, start)
        return found + 2 if found >= 0 else -1

    def _add(self, data: bytes) -> None:
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
            raise StorageFull(f"a mail could not be kept while it came: {self._failure.strerror}")
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
class Spools:
    """Where mail waits until it is whole, and how much of the large ones is in memory at once."""

    folder: Path
    most: int
    _held: int = 0
    _next: asyncio.Lock = field(default_factory=asyncio.Lock)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    def new(self) -> Spool:
        return Spool(self.folder, self.most)

    @asynccontextmanager
    async def turn(self, spool: Spool) -> AsyncIterator[None]:
        """Wait until there is memory for a large mail, in the order they came; a small one goes."""
        size = min(spool.size, MOST_BYTES_AT_ONCE) if spool.is_large else 0
        if size:
            async with self._next:
                while self._held + size > MOST_BYTES_AT_ONCE:
                    self._freed.clear()
                    await self._freed.wait()
                self._held += size
        try:
            yield
        finally:
            self._held -= size
            self._freed.set()
