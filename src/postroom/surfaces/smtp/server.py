"""The SMTP and LMTP listener."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from postroom.admission.rate_limits import RateLimits
from postroom.app import App
from postroom.config import DEFAULT_LISTEN, Settings
from postroom.errors import Conflict, InvalidInput
from postroom.pipeline.ingest import BatchIngest
from postroom.surfaces.connections import smtp_connections
from postroom.surfaces.smtp.connection import Gone, Wire
from postroom.surfaces.smtp.session import IDLE_S, Session, Spools

MAX_PER_PEER = 100
_STUFFED_BYTES = 1_024


@dataclass(eq=False)
class Listener:
    """Accepts connections and serves each in a task."""

    app: App
    tls: ssl.SSLContext | None
    port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _peers: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._ingest = BatchIngest(self.app.services)
        self._most = smtp_connections()
        per_minute = self.app.services.limits.smtp_per_minute
        self._rates = RateLimits(per_second=per_minute / 60, burst=per_minute)
        # Dot-stuffing makes a mail longer; its own size is checked when it is complete.
        most = self.app.services.limits.message_bytes + _STUFFED_BYTES
        self._spools = Spools(folder=self.app.settings.data_dir, most=most)

    def accept(self) -> Wire:
        """A wire for a new connection."""
        wire = _Served(self)
        self.app.services.counts.add("smtp_connections")
        return wire

    def serve(self, wire: Wire) -> None:
        """Serve a connection, unless there are too many."""
        peer = wire.peer
        task = asyncio.create_task(self._serve(wire, peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, wire: Wire, peer: str) -> None:
        if len(self._tasks) > self._most or self._peers[peer] >= MAX_PER_PEER:
            about = {"peer": peer, "connections": len(self._tasks)}
            self.app.services.counts.failed("smtp_limited", about)
            with suppress(Gone):
                await wire.send(b"421 4.7.0 too many connections; try again later\r\n", IDLE_S)
            wire.close()
            return
        self._peers[peer] += 1
        try:
            name = self.app.settings.domains[0]
            session = Session(wire, self._ingest, name, self.tls, self._rates, self._spools)
            await session.run()
        finally:
            self._peers[peer] -= 1

    async def close(self) -> None:
        """Close every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _Served(Wire):
    """A wire that is served once it is connected."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener
        self._is_served = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._is_served:
            self._is_served = True
            self._listener.serve(self)


def listen(settings: Settings) -> socket.socket | None:
    """Open the SMTP socket of the settings. If the default port is in use, a second server on this
    machine runs without SMTP.

    Raises:
        Conflict: the port is in use.
        InvalidInput: the address cannot be used.
    """
    if settings.smtp_listen is None:
        return None
    host, _, port = settings.smtp_listen.rpartition(":")
    try:
        [(family, *_, address), *_] = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and settings.smtp_listen == DEFAULT_LISTEN:
            return None
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"port {port} of {host} is in use; stop the other program, or change --smtp"
            ) from None
        raise InvalidInput(f"smtp: cannot listen on {host}:{port}: {error.strerror}") from None


@asynccontextmanager
async def listening(app: App, bound: socket.socket | None = None) -> AsyncIterator[Listener | None]:
    """Receive mail for as long as the block lasts, on an open socket or a new one.

    Raises:
        Conflict: the port is in use.
        InvalidInput: the address or the certificate cannot be used.
    """
    bound = bound or listen(app.settings)
    if bound is None:
        yield None
        return
    listener = Listener(app, _tls(app.settings))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(listener.accept, sock=bound)
    listener.port = bound.getsockname()[1]
    try:
        yield listener
    finally:
        server.close()
        await listener.close()


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"POSTROOM_TLS_CERT: {settings.tls_cert} cannot be used: {error}"
        ) from None
    return context
