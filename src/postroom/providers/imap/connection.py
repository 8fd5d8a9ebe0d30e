"""One IMAP connection with pipelined commands.

Responses are read in the callback of the socket, without a task or a thread. An untagged response
belongs to the oldest pending command.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NoReturn

from postroom.providers.imap.errors import (
    Disconnected,
    ImapFault,
    InvalidResponse,
    NotSecure,
    Refused,
    Status,
    TimedOut,
    printable,
    read_status,
)
from postroom.providers.imap.syntax import (
    Compression,
    Frame,
    Framer,
    Literal,
    Piece,
    command_segments,
)

COMMAND_S = 60.0
"""The timeout of a command; one with much data gets more."""

SLOWEST_BYTES_PER_S = 20_000
MAX_UNTAGGED = 250_000
_LITERAL_BYTES = 64 * 1024
_CHUNK_BYTES = 64 * 1024

FrameHandler = Callable[[Frame], None]


@dataclass(slots=True)
class PendingCommand:
    """A command that was sent and is not completed.

    `changes_stream` pauses reading after OK, because TLS or compression starts there.
    """

    name: str
    done: asyncio.Future[Status]
    take: FrameHandler | None = None
    literal_bytes: int = 0
    changes_stream: bool = False
    untagged: int = 0
    fault: ImapFault | None = None


class Connection(asyncio.Protocol):
    """A connection to a server.

    `first_response_s` limits the next response of a connection that was idle for long.
    `on_unsolicited` gets responses while no command is pending.
    """

    def __init__(self, *, socket_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.is_closed = False
        self.first_response_s: float | None = None
        self.on_unsolicited: FrameHandler | None = None
        self.greeting: asyncio.Future[Status] = loop.create_future()
        self._socket_s = socket_s
        self._received_at = loop.time()
        self._framer = Framer(_LITERAL_BYTES)
        self._compression: Compression | None = None
        self._is_paused = False
        self._pending: dict[bytes, PendingCommand] = {}
        self._numbers = count(1)
        self._sending = asyncio.Lock()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._unsent: list[bytes] = []
        self._continuation: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._reason = "the connection was closed"

    @property
    def is_busy(self) -> bool:
        return bool(self._pending)

    @property
    def peer_address(self) -> str:
        peer = self._transport.get_extra_info("peername") if self._transport else None
        return str(peer[0]) if peer else "0.0.0.0"  # noqa: S104, no address

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received_at = asyncio.get_running_loop().time()
        try:
            if self._compression is None:
                self._read(data)
                return
            unpacked = self._compression.unpack(data)
            while unpacked and not self.is_closed:
                self._read(unpacked)
                unpacked = self._compression.unpack(b"")
        except InvalidResponse as error:
            self.close(str(error), fault=InvalidResponse)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(f"the connection was lost: {exc}" if exc is not None else self._reason)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def close(self, reason: str, *, fault: type[ImapFault] = Disconnected) -> None:
        """Close the connection; pending commands fail with the reason."""
        if self.is_closed:
            return
        self.is_closed = True
        self._reason = reason
        self._may_write.set()
        waiting: list[asyncio.Future[Any]] = [self.greeting]
        waiting += [pending.done for pending in self._pending.values()]
        waiting += [self._continuation] if self._continuation is not None else []
        self._pending.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(fault(reason))
                future.exception()  # marks it as retrieved, or the loop logs it
        if self._transport is not None:
            self._transport.abort()

    # Receiving.

    def _read(self, data: bytes) -> None:
        for frame in self._framer.feed(data):
            if frame.line.startswith(b"* "):
                self._untagged(frame)
            elif frame.line.startswith(b"+"):
                if self._continuation is not None and not self._continuation.done():
                    self._continuation.set_result(frame.line[1:].strip())
            else:
                self._tagged(frame.line)
            if self.is_closed or self._is_paused:
                return

    def _untagged(self, frame: Frame) -> None:
        if not self.greeting.done():
            status = read_status(frame.line[2:])
            if status is None:
                raise InvalidResponse("the server sent no greeting")
            self.greeting.set_result(status)
            return
        if frame.line[2:5].upper() == b"BYE":
            text = frame.line[5:].decode("utf-8", "replace")
            self._reason = f"the server closed the connection: {printable(text)}"
        pending = next(iter(self._pending.values()), None)
        if pending is None and self.on_unsolicited is not None:
            self.on_unsolicited(frame)
        if pending is None or pending.take is None:
            return
        pending.untagged += 1
        if pending.untagged > MAX_UNTAGGED:
            raise InvalidResponse(f"more than {MAX_UNTAGGED} responses to {pending.name}")
        try:
            pending.take(frame)
        except InvalidResponse as fault:
            # Only this response is invalid, not the stream.
            pending.fault = fault

    def _tagged(self, line: bytes) -> None:
        tag, _, rest = line.partition(b" ")
        pending = self._pending.pop(tag, None)
        status = read_status(rest)
        if pending is None or status is None:
            raise InvalidResponse("a response with an unknown tag")
        self.first_response_s = None
        if status.word != "OK":
            refusal = Refused(pending.name, status.word, status.code, printable(status.text))
            pending.done.set_exception(refusal)
        elif pending.fault is not None:
            pending.done.set_exception(pending.fault)
        else:
            pending.done.set_result(status)
            if pending.changes_stream and self._transport is not None:
                self._is_paused = True
                self._transport.pause_reading()

    # Sending.

    async def run(
        self,
        name: str,
        *pieces: Piece,
        take: FrameHandler | None = None,
        literal_bytes: int = 0,
        literals: str = "",
        changes_stream: bool = False,
        timeout_s: float | None = None,
    ) -> Status:
        """Send a command and wait for its completion.

        *take* gets the untagged responses; each may carry *literal_bytes*. *literals* are the
        non-synchronizing literals of the server (RFC 7888): "+" all, "-" short ones, "" none.

        Raises:
            Refused: the server answered NO or BAD; the connection stays open.
            InvalidResponse: a response is invalid; the connection stays open if possible.
            ImapFault: the connection has ended.
        """
        pending = self._new_command(
            name, take=take, literal_bytes=literal_bytes, changes_stream=changes_stream
        )
        size = sum(len(piece.data) for piece in pieces if isinstance(piece, Literal))
        timeout_s = timeout_s or COMMAND_S + (size + literal_bytes) / SLOWEST_BYTES_PER_S
        async with self._sending:
            await self._send(pending, pieces, literals, timeout_s)
        return await self._wait_for_completion(pending, timeout_s)

    async def send_with_challenges(
        self, name: str, *pieces: Piece, reply: Callable[[bytes], bytes]
    ) -> Status:
        """Send a command that the server may answer with challenges, such as AUTHENTICATE."""
        pending = self._new_command(name)
        async with self._sending:
            await self._send(pending, pieces, "", COMMAND_S)
            for _ in range(5):
                self._continuation = asyncio.get_running_loop().create_future()
                if not await self._wait_for_continuation(pending, COMMAND_S):
                    break
                await self._write(pending, reply(self._continuation.result()) + b"\r\n", COMMAND_S)
            self._continuation = None
        return await self._wait_for_completion(pending, COMMAND_S)

    async def idle(
        self, stop: asyncio.Future[None], take: FrameHandler, *, longest_s: float
    ) -> None:
        """Receive changes by IDLE (RFC 2177), until *stop* or for *longest_s*.

        The server has to complete the command, so a dead connection is noticed.
        """
        pending = self._new_command("IDLE", take=take)
        async with self._sending:
            self._continuation = asyncio.get_running_loop().create_future()
            await self._send(pending, (), "", COMMAND_S)
            if await self._wait_for_continuation(pending, COMMAND_S):
                ends: set[asyncio.Future[Any]] = {stop, pending.done}
                await asyncio.wait(ends, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
                if not pending.done.done():
                    await self._write(pending, b"DONE\r\n", COMMAND_S)
            self._continuation = None
        await self._wait_for_completion(pending, COMMAND_S)

    def _new_command(self, name: str, **options: Any) -> PendingCommand:
        return PendingCommand(name, asyncio.get_running_loop().create_future(), **options)

    async def _send(
        self, pending: PendingCommand, pieces: Sequence[Piece], literals: str, timeout_s: float
    ) -> None:
        if self.is_closed:
            raise Disconnected(self._reason)
        tag = b"P%d" % next(self._numbers)
        segments = command_segments([tag, pending.name.encode(), *pieces], literals)
        self._pending[tag] = pending
        sizes = (waiting.literal_bytes for waiting in self._pending.values())
        self._framer.literal_bytes = max(_LITERAL_BYTES, *sizes)
        for segment in segments[:-1]:
            self._continuation = asyncio.get_running_loop().create_future()
            await self._write(pending, segment, timeout_s)
            if not await self._wait_for_continuation(pending, timeout_s):
                return
        await self._write(pending, segments[-1], timeout_s)

    async def _wait_for_continuation(self, pending: PendingCommand, timeout_s: float) -> bool:
        """Whether the server sent a continuation; if not, it has completed the command."""
        assert self._continuation is not None
        await self._wait_for_any({pending.done, self._continuation}, timeout_s, pending.name)
        return not pending.done.done() and self._continuation.exception() is None

    async def _write(self, pending: PendingCommand, data: bytes, timeout_s: float) -> None:
        for start in range(0, len(data), _CHUNK_BYTES):
            chunk = data[start : start + _CHUNK_BYTES]
            if self.is_closed:
                raise Disconnected(self._reason)
            if not self._unsent:
                # In the next iteration of the loop, so that pipelined commands share a packet.
                asyncio.get_running_loop().call_soon(self._flush)
            self._unsent.append(self._compression.pack(chunk) if self._compression else chunk)
            if len(data) > _CHUNK_BYTES:
                self._flush()
            if not self._may_write.is_set():
                try:
                    await asyncio.wait_for(self._may_write.wait(), timeout_s)
                except TimeoutError:
                    self._time_out(pending.name)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self.is_closed and self._transport is not None:
            self._transport.write(b"".join(unsent))

    async def _wait_for_completion(self, pending: PendingCommand, timeout_s: float) -> Status:
        await self._wait_for_any({pending.done}, timeout_s, pending.name)
        return pending.done.result()

    async def _wait_for_any(
        self, waiting: set[asyncio.Future[Any]], timeout_s: float, name: str
    ) -> None:
        """Wait for one of these; time out on silence, or at the end of *timeout_s*."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        self._received_at = loop.time()
        while not any(future.done() for future in waiting):
            silence_s = min(self._socket_s, self.first_response_s or timeout_s)
            left = min(end, self._received_at + silence_s) - loop.time()
            if left <= 0:
                self._time_out(name)
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _time_out(self, name: str) -> NoReturn:
        self.close(f"{name} timed out", fault=TimedOut)
        raise TimedOut(self._reason)

    # Compression and TLS.

    def start_compression(self) -> None:
        """Compress both directions from here on."""
        assert self._transport is not None
        rest = self._framer.take_rest()
        self._compression = Compression()
        self._is_paused = False
        if rest:
            self.data_received(rest)
        self._transport.resume_reading()

    async def start_tls(self, context: ssl.SSLContext, host: str, timeout_s: float) -> None:
        """Start TLS. Raises NotSecure.

        Plain text after the OK of the server is refused: a man in the middle may have injected it,
        and it would be read as if it came over TLS.
        """
        assert self._transport is not None
        if self._framer.take_rest():
            self.close("the server sent plain text after STARTTLS")
            raise NotSecure(self._reason)
        self._is_paused = False
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
            raise NotSecure(f"TLS failed: {printable(str(error))}") from error
        assert transport is not None
        self._transport = transport
