"""A small HTTPS server: pages from a dictionary, and a list of requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar


@dataclass
class HttpsPages:
    """The pages by host and path, and the requests that were made."""

    port: int = 0
    found: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines) if k}
            url = headers["host"].partition(":")[0] + first.split(" ")[1]
            self.requests.append((url, headers))
            body = self.found.get(url)
            status = "404 Not Found" if body is None else "200 OK"
            answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(body or b'')}\r\n\r\n"
            writer.write(answer.encode() + (body or b""))
            await writer.drain()
        writer.close()


Served = TypeVar("Served", bound=HttpsPages)


@asynccontextmanager
async def pages(
    context: ssl.SSLContext, kind: Callable[[], Served] = HttpsPages
) -> AsyncIterator[Served]:
    """Serve on a free port while the block runs."""
    made = kind()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await server.wait_closed()
