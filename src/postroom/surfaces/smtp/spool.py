"""What comes after DATA, and the waiting room for large mails."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from postroom.operations.keeping import KEPT_BYTES, Kept, Memory
from postroom.surfaces.smtp.wire import Wire

_END = b"\r\n.\r\n"


@dataclass(slots=True)
class Spool(Kept):
    """The bytes of one mail as they come."""

    async def fill(self, wire: Wire, idle_s: float, whole_s: float) -> None:
        """Take everything up to the dot. Raises what `Wire.more` raises."""
        loop = asyncio.get_running_loop()
        until = loop.time() + whole_s
        buffer, start = wire.buffer, 0
        while (end := self._end(buffer, start)) < 0:
            if len(buffer) > KEPT_BYTES:
                begun = bytes(buffer[: -len(_END)])
                del buffer[: len(begun)]
                await self.put(begun)
                start = 0
                continue
            start = max(0, len(buffer) - len(_END))
            await wire.more(min(idle_s, until - loop.time()))
        self.end(bytes(buffer[:end]))
        del buffer[: end + 3]

    def _end(self, buffer: bytearray, start: int) -> int:
        """Where the line with the dot begins; -1 if it has not come yet."""
        if not self.size and buffer.startswith(_END[2:]):
            return 0
        found = buffer.find(_END, start)
        return found + 2 if found >= 0 else -1


@dataclass(slots=True, kw_only=True)
class Spools(Memory):
    """Where mail waits until it is whole, and how much of the large ones is in memory at once."""

    folder: Path
    most: int

    def new(self) -> Spool:
        return Spool(self.folder, self.most)
