"""A TCP proxy that counts, delays, throttles and cuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_CHUNK_BYTES = 65_536


@dataclass
class Proxy:
    """The counters of the traffic, and the faults to inject.

    `round_trips` counts how often the client sent after it had received: data sent without waiting
    is one round trip. `cut_after` ends a connection after so many bytes from the server, for the
    next `cuts` connections that get so far; `stall_after` stops sending instead.
    """

    target: int
    round_trip_s: float = 0.0
    bytes_per_s: float | None = None
    cut_after: int | None = None
    cuts: int = 1_000_000
    stall_after: int | None = None
    port: int = 0
    round_trips: int = 0
    connections: int = 0
    bytes_from_server: int = 0
    bytes_from_client: int = 0
    _open: set[_Connection] = field(default_factory=set)

    def reset(self) -> None:
        """Set all counters to zero."""
        self.round_trips = self.connections = 0
        self.bytes_from_server = self.bytes_from_client = 0
        for connection in self._open:
            connection.passed = 0

    def cut_all(self) -> None:
        """End every open connection."""
        for connection in list(self._open):
            connection.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, writer, server_writer)
        self._open.add(connection)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connection.relay(reader, connection.from_client, server_writer))
                tasks.create_task(connection.relay(server_reader, connection.from_server, writer))
        finally:
            self._open.discard(connection)
            connection.abort()


@dataclass(eq=False)
class _Connection:
    """One connection."""

    proxy: Proxy
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    passed: int = 0
    has_client_spoken: bool = False

    def abort(self) -> None:
        for end in (self.client, self.server):
            end.transport.abort()

    def from_client(self, data: bytes) -> bytes:
        if not self.has_client_spoken:
            self.proxy.round_trips += 1
        self.has_client_spoken = True
        self.proxy.bytes_from_client += len(data)
        return data

    def from_server(self, data: bytes) -> bytes:
        self.has_client_spoken = False
        limits = [self.proxy.stall_after, self.proxy.cut_after if self.proxy.cuts else None]
        for limit in limits:
            if limit is not None:
                data = data[: max(0, limit - self.passed)]
        self.passed += len(data)
        self.proxy.bytes_from_server += len(data)
        return data

    @property
    def is_cut(self) -> bool:
        limit = self.proxy.cut_after
        return limit is not None and self.proxy.cuts > 0 and self.passed >= limit

    async def relay(
        self,
        reader: asyncio.StreamReader,
        count: Callable[[bytes], bytes],
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass on the data of one side, in order and with the delay."""
        waiting: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
        passing = asyncio.ensure_future(self._pass(waiting, writer))
        try:
            while data := await reader.read(_CHUNK_BYTES):
                due = asyncio.get_running_loop().time() + self.proxy.round_trip_s / 2
                waiting.put_nowait((due, count(data)))
        except ConnectionError:
            pass
        waiting.put_nowait(None)
        await passing
        self.abort()

    async def _pass(
        self, waiting: asyncio.Queue[tuple[float, bytes] | None], writer: asyncio.StreamWriter
    ) -> None:
        while (item := await waiting.get()) is not None:
            due, data = item
            delay = due - asyncio.get_running_loop().time()
            if delay > 0:
                await asyncio.sleep(delay)
            if self.proxy.bytes_per_s is not None:
                await asyncio.sleep(len(data) / self.proxy.bytes_per_s)
            writer.write(data)
            try:
                await writer.drain()
            except ConnectionError:
                return
            if writer is self.client and self.is_cut:
                self.proxy.cuts -= 1
                self.abort()
                return


@asynccontextmanager
async def proxied(target: int, **options: float) -> AsyncIterator[Proxy]:
    """A proxy to a port of this machine."""
    proxy = Proxy(target, **options)  # type: ignore[arg-type]
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut_all()
        await server.wait_closed()
