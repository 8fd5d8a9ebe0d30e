"""One connection: commands out, responses in, several under way at once.

Responses are read as they arrive, in the callback of the socket: no task, no thread, nothing to
leak. An untagged response belongs to the oldest command that is not answered yet.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NoReturn

from postroom.providers.imap.arguments import Bytes, Piece, command_segments
from postroom.providers.imap.compression import Compression
from postroom.providers.imap.faults import (
    Disconnected,
    ImapFault,
    NotSecure,
    Refused,
    TimedOut,
    Unreadable,
)
from postroom.providers.imap.framing import Frame, Framer
from postroom.providers.imap.status import Status, read_status, shown

COMMAND_S = 60.0
"""How long a command may take as a whole; what carries much data gets more."""

SLOWEST_BYTES_PER_S = 20_000
MOST_UNTAGGED = 250_000
_LITERAL_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024

Take = Callable[[Frame], None]


@dataclass(slots=True)
class Pending:
    """A command that was sent and has no answer yet.

    `switches` halts the reading at a good answer, because what follows has another form.
    """

    name: str
    done: asyncio.Future[Status]
    take: Take | None = None
    literal_bytes: int = 0
    switches: bool = False
    untagged: int = 0
    fault: ImapFault | None = None


class Connection(asyncio.Protocol):
    """A connection to a server, from its greeting to its end.

    `patience_s` is how long the next answer may take, for a connection that was not used for long.
    `unasked` gets what the server says while no command is under way.
    """

    def __init__(self, *, socket_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.is_closed = False
        self.patience_s: float | None = None
        self.unasked: Take | None = None
        self.greeting: asyncio.Future[Status] = loop.create_future()
        self._socket_s = socket_s
        self._heard_at = loop.time()
        self._framer = Framer(_LITERAL_BYTES)
        self._compression: Compression | None = None
        self._is_halted = False
        self._pending: dict[bytes, Pending] = {}
        self._numbers = count(1)
        self._sending = asyncio.Lock()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._unsent: list[bytes] = []
        self._consent: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._reason = "the connection was closed"

    @property
    def is_busy(self) -> bool:
        return bool(self._pending)

    @property
    def peer_address(self) -> str:
        peer = self._transport.get_extra_info("peername") if self._transport else None
        return str(peer[0]) if peer else "0.0.0.0"  # noqa: S104, no address at all

    # What the event loop tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        try:
            self._receive(data)
        except Unreadable as error:
            self.close(str(error), fault=Unreadable)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(f"the connection was lost: {exc}" if exc is not None else self._reason)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def close(self, reason: str, *, fault: type[ImapFault] = Disconnected) -> None:
        """End the connection now; every command that waits fails with the reason."""
        if self.is_closed:
            return
        self.is_closed = True
        self._reason = reason
        self._may_write.set()
        waiting: list[asyncio.Future[Any]] = [self.greeting]
        waiting += [pending.done for pending in self._pending.values()]
        waiting += [self._consent] if self._consent is not None else []
        self._pending.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(fault(reason))
                future.exception()  # or the loop complains if nobody asks
        if self._transport is not None:
            self._transport.abort()

    # What comes in.

    def _receive(self, data: bytes) -> None:
        if self._compression is None:
            self._read(data)
            return
        unpacked = self._compression.unpack(data)
        while unpacked and not self.is_closed:
            self._read(unpacked)
            unpacked = self._compression.unpack(b"")

    def _read(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            if frame.line.startswith(b"* "):
                self._untagged(frame)
            elif frame.line.startswith(b"+"):
                if self._consent is not None and not self._consent.done():
                    self._consent.set_result(frame.line[1:].strip())
            else:
                self._tagged(frame.line)
            if self.is_closed or self._is_halted:
                return

    def _untagged(self, frame: Frame) -> None:
        if not self.greeting.done():
            self._greet(frame)
            return
        if frame.line[2:5].upper() == b"BYE":
            said = frame.line[5:].decode("utf-8", "replace")
            self._reason = f"the server ended the connection: {shown(said)}"
        pending = next(iter(self._pending.values()), None)
        if pending is None and self.unasked is not None:
            self.unasked(frame)
        if pending is None or pending.take is None:
            return
        pending.untagged += 1
        if pending.untagged > MOST_UNTAGGED:
            raise Unreadable(f"more than {MOST_UNTAGGED} responses to {pending.name}")
        try:
            pending.take(frame)
        except Unreadable as fault:
            # The stream itself is sound: only what this one response says is not.
            pending.fault = fault

    def _greet(self, frame: Frame) -> None:
        status = read_status(frame.line[2:])
        if status is None:
            raise Unreadable("the server did not greet")
        self.greeting.set_result(status)

    def _tagged(self, line: bytes) -> None:
        tag, _, rest = line.partition(b" ")
        pending = self._pending.pop(tag, None)
        status = read_status(rest)
        if pending is None or status is None:
            raise Unreadable("an answer to nothing that was asked")
        self.patience_s = None
        if status.word != "OK":
            refusal = Refused(pending.name, status.word, status.code, shown(status.text))
            pending.done.set_exception(refusal)
        elif pending.fault is not None:
            pending.done.set_exception(pending.fault)
        else:
            pending.done.set_result(status)
            self._halt(pending)

    def _halt(self, pending: Pending) -> None:
        if pending.switches and self._transport is not None:
            self._is_halted = True
            self._transport.pause_reading()

    # What goes out.

    async def run(
        self,
        name: str,
        *pieces: Piece,
        take: Take | None = None,
        literal_bytes: int = 0,
        literals: str = "",
        switches: bool = False,
        timeout_s: float | None = None,
    ) -> Status:
        """Send a command and wait for its end.

        *take* gets every untagged response to it; each may carry *literal_bytes*. *literals* says
        which of ours the server takes without being asked: all "+", short ones "-", or none.

        Raises:
            Refused: the server said NO or BAD; the connection goes on.
            Unreadable: a response made no sense; the connection goes on if it still can.
            ImapFault: the connection has ended.
        """
        pending = self._new(name, take=take, literal_bytes=literal_bytes, switches=switches)
        size = sum(len(piece.data) for piece in pieces if isinstance(piece, Bytes))
        timeout_s = timeout_s or COMMAND_S + (size + literal_bytes) / SLOWEST_BYTES_PER_S
        async with self._sending:
            await self._send(pending, pieces, literals, timeout_s)
        return await self._answer(pending, timeout_s)

    async def converse(self, name: str, *pieces: Piece, reply: Callable[[bytes], bytes]) -> Status:
        """Send a command that the server may answer with challenges, as AUTHENTICATE."""
        pending = self._new(name)
        async with self._sending:
            await self._send(pending, pieces, "", COMMAND_S)
            for _ in range(5):
                self._consent = asyncio.get_running_loop().create_future()
                if not await self._consented(pending, COMMAND_S):
                    break
                await self._write(pending, reply(self._consent.result()) + b"\r\n", COMMAND_S)
            self._consent = None
        return await self._answer(pending, COMMAND_S)

    async def idle(self, stop: asyncio.Future[None], take: Take, *, longest_s: float) -> None:
        """Let the server tell what happens, until *stop* or for so long (RFC 2177).

        It has to answer in the end: that is how a dead connection is noticed.
        """
        pending = self._new("IDLE", take=take)
        async with self._sending:
            self._consent = asyncio.get_running_loop().create_future()
            await self._send(pending, (), "", COMMAND_S)
            if await self._consented(pending, COMMAND_S):
                ends: set[asyncio.Future[Any]] = {stop, pending.done}
                await asyncio.wait(ends, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
                if not pending.done.done():
                    await self._write(pending, b"DONE\r\n", COMMAND_S)
            self._consent = None
        await self._answer(pending, COMMAND_S)

    def _new(self, name: str, **options: Any) -> Pending:
        return Pending(name, asyncio.get_running_loop().create_future(), **options)

    async def _send(
        self, pending: Pending, pieces: Sequence[Piece], literals: str, timeout_s: float
    ) -> None:
        if self.is_closed:
            raise Disconnected(self._reason)
        tag = b"P%d" % next(self._numbers)
        segments = command_segments([tag, pending.name.encode(), *pieces], literals)
        self._pending[tag] = pending
        carried = (waiting.literal_bytes for waiting in self._pending.values())
        self._framer.literal_bytes = max(_LITERAL_BYTES, *carried)
        for segment in segments[:-1]:
            self._consent = asyncio.get_running_loop().create_future()
            await self._write(pending, segment, timeout_s)
            if not await self._consented(pending, timeout_s):
                return
        await self._write(pending, segments[-1], timeout_s)

    async def _consented(self, pending: Pending, timeout_s: float) -> bool:
        """Whether the server wants the next line; if not, it has answered the command already."""
        assert self._consent is not None
        await self._first_of({pending.done, self._consent}, timeout_s, pending.name)
        return not pending.done.done() and self._consent.exception() is None

    async def _write(self, pending: Pending, data: bytes, timeout_s: float) -> None:
        for start in range(0, len(data), _CHUNK_BYTES):
            chunk = data[start : start + _CHUNK_BYTES]
            if self.is_closed:
                raise Disconnected(self._reason)
            self._push(self._compression.pack(chunk) if self._compression else chunk)
            if len(data) > _CHUNK_BYTES:
                self._flush()
            if not self._may_write.is_set():
                await self._within(self._may_write.wait(), timeout_s, pending.name)

    def _push(self, data: bytes) -> None:
        """Send soon: commands that are started together travel together, in one packet."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent.append(data)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self.is_closed and self._transport is not None:
            self._transport.write(b"".join(unsent))

    async def _within(self, waiting: Awaitable[object], timeout_s: float, name: str) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await waiting
        except TimeoutError:
            self._give_up(name)

    async def _answer(self, pending: Pending, timeout_s: float) -> Status:
        await self._first_of({pending.done}, timeout_s, pending.name)
        return pending.done.result()

    async def _first_of(
        self, waiting: set[asyncio.Future[Any]], timeout_s: float, name: str
    ) -> None:
        """Wait for one of these, as long as the server is not silent and time is left."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        self._heard_at = loop.time()
        while not any(future.done() for future in waiting):
            silence_s = min(self._socket_s, self.patience_s or timeout_s)
            left = min(end, self._heard_at + silence_s) - loop.time()
            if left <= 0:
                self._give_up(name)
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _give_up(self, name: str) -> NoReturn:
        self.close(f"no answer to {name} in time", fault=TimedOut)
        raise TimedOut(self._reason)

    # How the stream changes its form.

    def start_compression(self) -> None:
        """From here on both sides send packed bytes."""
        assert self._transport is not None
        rest = self._framer.take_rest()
        self._compression = Compression()
        self._is_halted = False
        if rest:
            self.data_received(rest)
        self._transport.resume_reading()

    async def start_tls(self, context: ssl.SSLContext, host: str, timeout_s: float) -> None:
        """Make the connection secure. Raises NotSecure.

        Whatever came in the clear behind the server's consent would read as if it came over TLS,
        and a man in the middle may have put it there.
        """
        assert self._transport is not None
        if self._framer.take_rest():
            self.close("the server spoke on in the clear after STARTTLS")
            raise NotSecure(self._reason)
        self._is_halted = False
        try:
            transport = await asyncio.get_running_loop().start_tls(
                self._transport,
                self,
                context,
                server_hostname=host,
                ssl_handshake_timeout=timeout_s,
            )
        except OSError as error:
            self.close("TLS failed")
            raise NotSecure(f"TLS failed: {shown(str(error))}") from error
        assert transport is not None
        self._transport = transport
