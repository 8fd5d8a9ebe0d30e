"""Load clients with open connections: closed loop, and open loop at a given rate."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Answer = tuple[int, bool]
"""A status, and whether it has Retry-After; 0 is no response."""


@dataclass
class LoadResult:
    """The results of some requests; times count from when each was due."""

    answers: Counter[Answer] = field(default_factory=Counter)
    good_s: list[float] = field(default_factory=list)
    bad_at: list[float] = field(default_factory=list)
    began_at: float = field(default_factory=time.perf_counter)
    lasted_s: float = 0.0

    @property
    def good(self) -> int:
        return len(self.good_s)

    @property
    def refused(self) -> int:
        """The number of requests refused with Retry-After."""
        return sum(n for (status, says), n in self.answers.items() if status in (429, 503) and says)

    @property
    def failed(self) -> int:
        """The number of requests neither successful nor refused with Retry-After."""
        return self.answers.total() - self.good - self.refused

    def ms(self, share: float) -> float:
        """The time within which a share of the successful responses arrived."""
        ordered = sorted(self.good_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3


class Connection:
    """One client: it sends requests, and reconnects when its connection was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None or self._streams[0].at_eof():
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        return self._streams

    async def ask(self, request: bytes) -> Answer:
        try:
            reader, writer = await self.open()
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            _, _, length = head.partition(b"content-length: ")
            await reader.readexactly(int(length.split(b"\r\n", 1)[0]))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0, False
        return int(head[9:12]), b"\r\nretry-after: " in head

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


class Clients:
    """All clients of one server."""

    def __init__(self, port: int, count: int, make: Callable[[], bytes]) -> None:
        self._make, self._all = make, [Connection(port) for _ in range(count)]

    async def open(self) -> None:
        """Connect, unless connected."""
        for some in range(0, len(self._all), 100):
            await asyncio.gather(*(client.open() for client in self._all[some : some + 100]))

    def close(self) -> None:
        for client in self._all:
            client.close()

    async def closed_loop(self, at_once: int, requests: int) -> LoadResult:
        """Send as fast as the server responds, with this many clients."""
        took, left = LoadResult(), iter(range(requests))

        async def go_on(client: Connection) -> None:
            for _ in left:
                await _one(took, client, self._make(), time.perf_counter())

        await asyncio.gather(*(go_on(client) for client in self._all[:at_once]))
        took.lasted_s = time.perf_counter() - took.began_at
        return took

    async def open_loop(self, per_s: float, seconds: float) -> LoadResult:
        """Send at a fixed rate, independent of the server; requests wait if no client is free."""
        took, idle = LoadResult(), asyncio.LifoQueue[Connection]()
        for client in random.sample(self._all, len(self._all)):
            idle.put_nowait(client)

        async def go(due: float) -> None:
            client = await idle.get()
            await _one(took, client, self._make(), due)
            idle.put_nowait(client)

        async with asyncio.TaskGroup() as tasks:
            for due in _times(took.began_at, per_s, seconds):
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                tasks.create_task(go(due))
        took.lasted_s = time.perf_counter() - took.began_at
        return took


def _times(started: float, per_s: float, seconds: float) -> Sequence[float]:
    """The random times at which requests of independent clients are due."""
    chance, at, times = random.Random(1), started, []
    while (at := at + chance.expovariate(per_s)) < started + seconds:
        times.append(at)
    return times


async def _one(took: LoadResult, client: Connection, request: bytes, due: float) -> None:
    status, says_when = await client.ask(request)
    took.answers[status, says_when] += 1
    if 200 <= status < 300:
        took.good_s.append(time.perf_counter() - due)
    else:
        took.bad_at.append(due)
