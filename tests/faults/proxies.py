"""A TCP proxy in a thread; the drills derive proxies that lose or delay what is passed on."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from contextlib import suppress


class ThreadedProxy(threading.Thread, ABC):
    """Accepts connections on `port` and relays each to the target."""

    def __init__(self, target: int) -> None:
        super().__init__(daemon=True)
        self._target, self.port = target, 0
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self.start()
        self._ready.wait()

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_target, to_target = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        with suppress(OSError):
            await self.relay(reader, writer, from_target, to_target)
        for end in (writer, to_target):
            end.transport.abort()

    @abstractmethod
    async def relay(
        self,
        from_client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        from_target: asyncio.StreamReader,
        to_target: asyncio.StreamWriter,
    ) -> None:
        """Relay a connection until one side ends it; both are closed afterwards."""
