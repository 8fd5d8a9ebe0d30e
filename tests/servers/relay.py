"""A scripted SMTP relay that records what it receives."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

CUT = object()
"""Instead of a reply: close the connection."""

HANG = object()
"""Instead of a reply: send nothing more."""


class Part(bytes):
    """The beginning of a reply, after which the connection is closed."""


Reply = bytes | object
Script = Mapping[str, Reply | Callable[[str], Reply]]

USUAL: Script = {
    "GREETING": b"220 relay.example ESMTP",
    "EHLO": b"250-relay.example\r\n250-SIZE 50000000\r\n250-8BITMIME\r\n250 SMTPUTF8",
    "HELO": b"250 relay.example",
    "AUTH": b"235 2.7.0 welcome",
    "MAIL": b"250 2.1.0 ok",
    "RCPT": b"250 2.1.5 ok",
    "DATA": b"354 go ahead",
    "DOT": b"250 2.0.0 queued as 1",
    "RSET": b"250 ok",
    "NOOP": b"250 ok",
    "QUIT": b"221 bye",
}


@dataclass
class Mail:
    """A received mail: the envelope, and the bytes as they came."""

    sender: str
    recipients: list[str]
    data: bytes
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    is_taken: bool = False
    """Whether it is delivered: the relay accepted it, or its reply was lost."""


@dataclass
class Relay:
    """Listens on loopback. `script` replaces default replies; a function gets the whole line."""

    script: Script = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    mails: list[Mail] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    dot_came: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, OSError):
            await self._session(reader, writer)
        self._open.discard(writer)
        writer.close()

    def hang_up(self) -> None:
        """Close every connection, as a relay does with idle ones."""
        for writer in self._open:
            writer.close()

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mail = Mail("", [], b"")
        if not await self._reply(writer, "GREETING", ""):
            return
        while line := (await reader.readline()).decode("utf-8", "replace").rstrip("\r\n"):
            self.lines.append(line)
            verb = line.split()[0].upper()
            if verb == "MAIL":
                mail = Mail(line.split("<", 1)[1].split(">")[0], [], b"")
            code = await self._reply(writer, verb, line)
            if not code or verb == "QUIT":
                return
            if verb == "RCPT" and code.startswith(b"2"):
                mail.recipients.append(line.split("<", 1)[1].split(">")[0])
            if verb == "STARTTLS" and code.startswith(b"220") and self.tls is not None:
                await writer.start_tls(self.tls)
            if verb == "DATA" and code.startswith(b"354"):
                mail.data = await reader.readuntil(b"\r\n.\r\n")
                self.dot_came.set()
                self.mails.append(mail)
                answer = await self._reply(writer, "DOT", "")
                mail.is_taken = not answer or answer.startswith(b"2")
                if not answer:
                    return

    async def _reply(self, writer: asyncio.StreamWriter, verb: str, line: str) -> bytes:
        reply = self.script.get(verb, USUAL.get(verb, b"502 what?"))
        if callable(reply):
            reply = reply(line)
        if reply is CUT:
            return b""
        if reply is HANG:
            await asyncio.sleep(3600)
        assert isinstance(reply, bytes)
        if isinstance(reply, Part):
            writer.write(reply)
            await writer.drain()
            return b""
        writer.write(reply if reply.endswith(b"\0") else reply + b"\r\n")
        await writer.drain()
        return reply


@asynccontextmanager
async def relaying(script: Script | None = None, **options: object) -> AsyncIterator[Relay]:
    """Run a relay."""
    relay = Relay(script or {}, **options)  # type: ignore[arg-type]
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await relay.serve(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=2**26)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
