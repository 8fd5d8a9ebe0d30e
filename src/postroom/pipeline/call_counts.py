"""Calls of tools, counted in memory and written once a minute.

A call writes nothing itself: every write would end what readers have cached. What a process has
counted since its last write is lost if it is killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime

from postroom.errors import MailError
from postroom.model.activity import CallCount

log = logging.getLogger(__name__)

WRITE_EVERY_S = 60.0
_CLOSE_S = 2.0
Write = Callable[[Sequence[CallCount]], Awaitable[None]]
_Name = tuple[date, str, str, str]


class CallCounts:
    """The calls that this process has not written yet."""

    def __init__(self, write: Write | None = None) -> None:
        self._write = write
        self._pending: dict[_Name, list[int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def add(self, at: datetime, caller: str, via: str, tool: str, *, is_error: bool) -> None:
        """Count a call; it is written within a minute."""
        name = (at.astimezone(UTC).date(), caller, via, tool)
        numbers = self._pending.setdefault(name, [0, 0])
        numbers[0] += 1
        numbers[1] += is_error
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WRITE_EVERY_S, self._begin_write)

    def pending(self) -> list[CallCount]:
        """What is not written yet."""
        return [CallCount(*name, *numbers) for name, numbers in self._pending.items()]

    def _begin_write(self) -> None:
        self._timer = None
        self._writing = asyncio.ensure_future(self.write())

    async def write(self) -> None:
        """Write what was counted; if that fails, it is written with the next calls."""
        if self._write is None or not self._pending:
            return
        calls, self._pending = self.pending(), {}
        try:
            await self._write(calls)
        except MailError as error:
            log.warning("call_counts.failed", extra={"error": str(error)})
            for day, caller, via, tool, count, errors in calls:
                numbers = self._pending.setdefault((day, caller, via, tool), [0, 0])
                numbers[0] += count
                numbers[1] += errors

    async def close(self) -> None:
        """Write the rest, unless that takes long."""
        if self._timer is not None:
            self._timer.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                if self._writing is not None:
                    await self._writing
                await self.write()
