"""The wire under an SMTP session: our own buffer, so that we know what came when."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

_PAUSE_AT = 1 << 18
_LEAVE_S = 10.0


class Gone(Exception):
    """The other side has closed the connection, or broken it."""


class Wire(asyncio.Protocol):
    """Bytes in, bytes out. What came before TLS must never be taken for what came after."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._news = asyncio.Event()
        self._is_gone = False
        self._can_write = asyncio.Event()
        self._can_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > _PAUSE_AT and self._transport is not None:
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> bool:
        self._is_gone = True
        self._news.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_gone = True
        self._news.set()
        self._can_write.set()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    @property
    def peer(self) -> str:
        assert self._transport is not None
        name = self._transport.get_extra_info("peername")
        return str(name[0]) if isinstance(name, tuple) else "local"

    async def more(self, within_s: float) -> None:
        """Wait until there are more bytes in the buffer.

        Raises:
            Gone: there will be none.
            TimeoutError: none came in time.
        """
        assert self._transport is not None
        if self._is_gone:
            raise Gone
        self._news.clear()
        self._transport.resume_reading()
        before = len(self.buffer)
        async with asyncio.timeout(within_s):
            await self._news.wait()
        if len(self.buffer) == before and self._is_gone:
            raise Gone

    async def send(self, data: bytes, within_s: float) -> None:
        """Write, and wait for a while if the other side does not read.

        Raises:
            Gone: nobody is there, or nobody reads.
        """
        if self._is_gone or self._transport is None:
            raise Gone
        self._transport.write(data)
        try:
            async with asyncio.timeout(within_s):
                await self._can_write.wait()
        except TimeoutError:
            self._transport.abort()
            raise Gone from None

    async def start_tls(self, context: ssl.SSLContext, within_s: float) -> None:
        """Encrypt from here on.

        Raises:
            Gone: the handshake failed, or something was said before it.
        """
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within_s):
                upgraded = await loop.start_tls(self._transport, self, context, server_side=True)
        except (OSError, TimeoutError) as error:
            raise Gone from error
        if upgraded is None or self.buffer:
            self.close()
            raise Gone
        self._transport = upgraded

    def close(self) -> None:
        """End the connection, also if our last words are not read."""
        if self._transport is None:
            return
        self._transport.close()
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_LEAVE_S, self._transport.abort)
