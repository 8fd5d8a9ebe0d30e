"""The SMTP and LMTP listener, and its sessions: commands and replies.

A mail is acknowledged after it is on disk. PIPELINING is not offered, so data that follows a mail
before the reply is smuggling, and the mail is refused.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from postroom.admission.rate_limits import RateLimits
from postroom.app import App
from postroom.config import DEFAULT_LISTEN, Settings
from postroom.errors import (
    Conflict,
    InvalidInput,
    MailError,
    RateLimited,
)
from postroom.pipeline.ingest import BatchIngest
from postroom.pipeline.routing import inboxes_for, refuses_sender
from postroom.surfaces.connections import smtp_connections
from postroom.surfaces.smtp.connection import (
    ClientDisconnected,
    Delivery,
    Envelope,
    Path,
    Spool,
    Spools,
    Wire,
    combined_reply,
    parse_path,
)

IDLE_S = 300.0
"""Timeout for a command, from the previous reply."""

MAIL_S = 3_600.0
"""Timeout for a whole mail; `IDLE_S` applies to each pause in it."""

HANDSHAKE_S = 30.0
MAX_LINE_BYTES = 2_000
MAX_RECIPIENTS = 100
MAX_ERRORS = 20
_FROM_PARAMETERS = {"SIZE", "BODY", "SMTPUTF8"}


class _SessionClosed(Exception):
    """The server closes the connection; the last reply is sent."""


@dataclass(slots=True)
class Session:
    """Serves one client until it disconnects."""

    wire: Wire
    batch_ingest: BatchIngest
    server_name: str
    tls: ssl.SSLContext | None
    rates: RateLimits
    spools: Spools
    idle_s: float = IDLE_S
    mail_s: float = MAIL_S
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    _greeted: bool = False
    _is_lmtp: bool = False
    _is_encrypted: bool = False
    _mail: Envelope | None = None
    _errors: int = 0

    async def run(self) -> None:
        """Serve the client."""
        try:
            await self._reply(f"220 {self.server_name} ESMTP Postroom")
            while True:
                await self._answer(await self._line())
        except TimeoutError:
            with suppress(ClientDisconnected):
                await self._reply("421 4.4.2 timeout; try again later")
        except (ClientDisconnected, _SessionClosed):
            pass
        finally:
            self.wire.close()

    async def _reply(self, *lines: str) -> None:
        data = "".join(f"{line}\r\n" for line in lines).encode()
        await self.wire.send(data, self.idle_s)

    async def _line(self) -> str | None:
        """The next command; None for a syntax error. A line that is too long ends the
        connection."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.idle_s
        while (end := self.wire.buffer.find(b"\n")) < 0:
            if len(self.wire.buffer) > MAX_LINE_BYTES:
                break
            await self.wire.wait_for_data(until - loop.time())
        if end < 0 or end > MAX_LINE_BYTES:
            await self._reply("500 5.5.2 line too long")
            raise _SessionClosed
        line = bytes(self.wire.buffer[: end + 1])
        del self.wire.buffer[: end + 1]
        if not line.endswith(b"\r\n") or b"\0" in line or b"\r" in line[:-2]:
            await self._refuse(
                "500 5.5.2 syntax error: end lines with CRLF, without control characters"
            )
            return None
        return line[:-2].decode("utf-8", "replace")

    async def _answer(self, line: str | None) -> None:
        if line is None:
            return
        verb, _, argument = line.partition(" ")
        if command := _COMMANDS.get(verb.upper()):
            await command(self, argument.strip())
        elif reply := _REPLIES.get(verb.upper()):
            await self._reply(reply)
        elif verb.upper() in _HTTP_METHODS:
            await self._reply("421 4.7.0 this port is for SMTP, not for HTTP")
            raise _SessionClosed
        else:
            missing = "500 5.5.2 syntax error: empty line"
            await self._refuse("500 5.5.1 command not recognized" if verb else missing)

    async def _refuse(self, words: str) -> None:
        self._errors += 1
        if self._errors >= MAX_ERRORS:
            await self._reply(words, "421 4.7.0 too many errors; closing connection")
            raise _SessionClosed
        await self._reply(words)

    async def hello(self, name: str, *, is_lmtp: bool = False, is_extended: bool = True) -> None:
        """HELO, EHLO (RFC 5321 §4.1.1.1) or LHLO (RFC 2033 §4.1)."""
        if not name:
            await self._refuse("501 5.5.4 a domain is required")
            return
        self._greeted, self._is_lmtp, self._mail = True, is_lmtp, None
        if not is_extended:
            await self._reply(f"250 {self.server_name}")
            return
        limits = self.batch_ingest.services.limits
        offers = [f"SIZE {limits.message_bytes}", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]
        if self.tls is not None and not self._is_encrypted:
            offers.append("STARTTLS")
        *first, last = [self.server_name, *offers]
        await self._reply(*(f"250-{offer}" for offer in first), f"250 {last}")

    async def starttls(self, argument: str) -> None:
        if self.tls is None or self._is_encrypted:
            await self._refuse("503 5.5.1 TLS is not available")
            return
        if argument or self.wire.buffer:
            await self._reply("554 5.5.1 data received before the TLS handshake")
            raise _SessionClosed
        await self._reply("220 2.0.0 ready to start TLS")
        await self.wire.start_tls(self.tls, HANDSHAKE_S)
        self._greeted, self._mail, self._is_encrypted = False, None, True

    async def mail(self, argument: str) -> None:
        path = parse_path("FROM", argument)
        if not self._greeted:
            await self._refuse("503 5.5.1 send EHLO first")
        elif self._mail is not None:
            await self._refuse("503 5.5.1 nested MAIL command; send RSET first")
        elif path is None:
            await self._refuse("501 5.1.7 syntax: MAIL FROM:<address>")
        elif problem := self._wrong_parameters(path):
            await self._refuse(problem)
        else:
            await self._begin(path)

    async def _begin(self, path: Path) -> None:
        try:
            self.rates.take(self.wire.peer)
        except RateLimited as error:
            self._failed("smtp_limited", wait_s=error.retry_after)
            await self._reply(
                f"450 4.7.1 too many messages from this client; retry in {error.retry_after} s"
            )
            return
        self._mail = Envelope(path.address)
        await self._reply("250 2.1.0 ok")

    def _wrong_parameters(self, path: Path) -> str | None:
        if unknown := set(path.parameters) - _FROM_PARAMETERS:
            return f"555 5.5.4 {min(unknown)[:40]} is not supported"
        if path.parameters.get("BODY", "7BIT").upper() not in ("7BIT", "8BITMIME"):
            return "501 5.5.4 BODY must be 7BIT or 8BITMIME"
        size = path.parameters.get("SIZE", "0")
        if not size.isdecimal() or len(size) > 20:
            return "501 5.5.4 SIZE must be a number"
        if int(size) > self.batch_ingest.services.limits.message_bytes:
            return "552 5.3.4 message size exceeds the limit"
        return None

    async def rcpt(self, argument: str) -> None:
        path = parse_path("TO", argument)
        if self._mail is None:
            await self._refuse("503 5.5.1 send MAIL first")
        elif path is None or not path.address:
            await self._refuse("501 5.1.3 syntax: RCPT TO:<address>")
        elif path.parameters:
            await self._refuse("555 5.5.4 RCPT parameters are not supported")
        elif len(self._mail.inboxes) >= MAX_RECIPIENTS:
            # RFC 5321 §4.5.3.1.10: not an error; the client sends another copy to the others.
            await self._reply(f"452 4.5.3 too many recipients; the limit is {MAX_RECIPIENTS}")
        else:
            # RFC 5321 §4.5.1: the postmaster needs no domain.
            address = path.address if "@" in path.address else f"{path.address}@{self.server_name}"
            await self._recipient(self._mail, address)

    async def _recipient(self, mail: Envelope, address: str) -> None:
        services = self.batch_ingest.services
        try:
            inbox = (await inboxes_for(services, [address])).get(address.lower())
            is_refused = inbox is not None and await refuses_sender(services, inbox.id, mail.sender)
        except MailError as error:
            self._failed("smtp_failed", error=str(error))
            await self._reply("451 4.3.0 the address cannot be looked up now; try again later")
            return
        if inbox is not None and not is_refused:
            mail.inboxes.append(inbox.id)
            await self._reply("250 2.1.5 ok")
            return
        self._count("recipients_refused")
        if is_refused:
            await self._refuse("550 5.7.1 this address does not accept mail from you")
            return
        is_ours = address.lower().rpartition("@")[2] in services.domains
        await self._refuse("550 5.1.1 no such address" if is_ours else "550 5.7.1 relaying denied")

    async def data(self, argument: str) -> None:
        mail = self._mail
        if mail is None or not mail.inboxes:
            await self._refuse("503 5.5.1 send RCPT first")
            return
        if argument:
            await self._refuse("501 5.5.4 DATA takes no argument")
            return
        if self.wire.buffer:
            await self._reply("503 5.5.0 wait for the reply to DATA")
            raise _SessionClosed
        await self._reply("354 end with a dot on a line by itself")
        spool = self.spools.new()
        try:
            await spool.fill(self.wire, self.idle_s, self.mail_s)
            if self.wire.buffer:
                await self._refuse_smuggling()
            self._mail = None
            async with self.spools.reserve(spool):
                await self._deliver(mail, spool)
        finally:
            spool.close()

    async def _refuse_smuggling(self) -> None:
        """Without PIPELINING, data before the reply is an attempt to smuggle commands."""
        self._count("refused")
        self._failed("smtp_smuggled", reason="data before the reply")
        await self._reply("554 5.5.0 data received before the reply; the message was refused")
        raise _SessionClosed

    async def _deliver(self, mail: Envelope, spool: Spool) -> None:
        answers = await Delivery(self.batch_ingest, self._failed).deliver(mail, spool)
        words = combined_reply(answers)
        if words[0] != "4":
            self._count("accepted" if words[0] == "2" else "refused")
        await self._reply(*(answers if self._is_lmtp else [words]))

    def _count(self, what: str) -> None:
        self.batch_ingest.services.counts.add(f"smtp_{what}")

    def _failed(self, name: str, *, cause: Exception | None = None, **context: object) -> None:
        """Log a failure with the connection, never with content of the mail."""
        about = {"session": self.id, "peer": self.wire.peer, **context}
        self.batch_ingest.services.counts.failed(name, about, cause=cause)

    async def rset(self, _argument: str) -> None:
        self._mail = None
        await self._reply("250 2.0.0 ok")

    async def quit(self, _argument: str) -> None:
        await self._reply("221 2.0.0 closing connection")
        raise _SessionClosed


_COMMANDS: dict[str, Callable[[Session, str], Awaitable[None]]] = {
    "HELO": partial(Session.hello, is_extended=False),
    "EHLO": Session.hello,
    "LHLO": partial(Session.hello, is_lmtp=True),
    "STARTTLS": Session.starttls,
    "MAIL": Session.mail,
    "RCPT": Session.rcpt,
    "DATA": Session.data,
    "RSET": Session.rset,
    "QUIT": Session.quit,
}
_HTTP_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_REPLIES = {
    "NOOP": "250 2.0.0 ok",
    "VRFY": "252 2.5.0 cannot verify the address; send the message",
    "HELP": "214 2.0.0 see RFC 5321",
}


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
        max_bytes = self.app.services.limits.message_bytes + _STUFFED_BYTES
        self._spools = Spools(folder=self.app.settings.data_dir, max_bytes=max_bytes)

    def accept(self) -> Wire:
        """A wire for a new connection."""
        wire = _ServedWire(self)
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
            with suppress(ClientDisconnected):
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


class _ServedWire(Wire):
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
                f"port {port} of {host} is in use; stop the other program, or choose --smtp"
            ) from None
        raise InvalidInput(
            f"smtp: cannot listen on {host}:{port}: {error.strerror}; choose --smtp"
        ) from None


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
