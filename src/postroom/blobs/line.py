"""The line before a server that may fall silent: nobody waits in it without end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic

from postroom.blobs.object_errors import SILENT, Silent
from postroom.errors import Unavailable

_STILL_S = 10.0
"""Nobody waits longer in a line that does not move."""

_MANY = 64
_MANY_STILL_S = 2.0
"""Half of those whom a process answers at the same time; who comes after them waits shorter."""

_SHUT_S = 5.0


class Line:
    """So many may ask a server at the same time, and nobody for a while after a silence.

    Then one tries for all: what it finds is what the others are told.
    """

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._waiting: dict[asyncio.Timeout, float] = {}
        self._moved_s = self._shut_until_s = -math.inf

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Whatever is asked together. Raises Silent at once if there was silence just now."""
        self._refuse_if_shut()
        if math.isfinite(self._shut_until_s):
            self._shut_until_s = monotonic() + _SHUT_S
        try:
            yield
        except Silent:
            self.shut()
            raise
        self._shut_until_s = -math.inf

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One turn for what is asked. Raises Unavailable if the line does not move."""
        await self._wait()
        self._moved()
        try:
            yield
        finally:
            self._free.release()
            self._moved()

    def shut(self) -> None:
        """Let nobody ask for a while, and those who wait go."""
        self._shut_until_s = monotonic() + _SHUT_S
        for patience in self._waiting:
            _reschedule(patience, 0)

    async def _wait(self) -> None:
        is_long = len(self._waiting) >= _MANY
        still_s = _MANY_STILL_S if is_long else _STILL_S
        left_s = self._moved_s + still_s - monotonic() if is_long else still_s
        patience = asyncio.timeout(max(left_s, 0))
        self._waiting[patience] = still_s
        try:
            async with patience:
                await self._free.acquire()
        except TimeoutError as error:
            self._refuse_if_shut()
            raise Unavailable("the object store is too slow; try again", retry_after=2) from error
        finally:
            del self._waiting[patience]

    def _refuse_if_shut(self) -> None:
        left_s = self._shut_until_s - monotonic()
        if left_s > 0:
            raise Silent(SILENT, retry_after=math.ceil(left_s))

    def _moved(self) -> None:
        self._moved_s = monotonic()
        for patience, still_s in self._waiting.items():
            _reschedule(patience, still_s)


def _reschedule(patience: asyncio.Timeout, more_s: float) -> None:
    if not patience.expired():
        patience.reschedule(asyncio.get_running_loop().time() + more_s)
