"""A TLS host of client ID metadata documents with arbitrary responses."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.servers.https import HttpsPages


@dataclass
class DocumentHost(HttpsPages):
    """Raw responses by path; after an incomplete response, it sends single bytes."""

    answers: dict[str, bytes] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def put(self, path: str, **document: Any) -> str:
        """Publish a document; returns its URL, which is the client_id."""
        url = f"{self.url}{path}"
        body = json.dumps({"client_id": url, "client_name": "Claude", **document}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        self.answers[path] = head.encode() + b"\r\nConnection: close\r\n\r\n" + body
        return url

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode()
            self.paths.append(path)
            writer.write(self.answers.get(path, b"HTTP/1.1 404 Not Found\r\n\r\n"))
            while path.startswith("/slow") and not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.05)
        writer.close()
