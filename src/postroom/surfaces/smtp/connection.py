"""One SMTP connection: lines and paths, the spool of its mail, and the delivery to inboxes."""

from __future__ import annotations

import asyncio
import pathlib
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from postroom.admission.spool import MEMORY_BYTES, MemoryBudget, SpooledBytes
from postroom.errors import (
    InvalidInput,
    MailError,
    NotFound,
    StorageFull,
    TooLarge,
)
from postroom.mail.addresses import parse_address
from postroom.model.mail.storage import Added
from postroom.pipeline.ingest import Arrival, BatchIngest

MAX_ADDRESS_CHARS = 320
_PATH = re.compile(r"(FROM|TO):\s?<((?:@[^:<>\s]{1,255}:)?)([^<>]*)>(?:\s+(\S.*))?", re.IGNORECASE)

_QUOTED = re.compile(r'\A"([\w.!#$%&\'*+/=?^`{|}~-]{1,64})"@([^@"]{1,255})\Z')


@dataclass(frozen=True, slots=True)
class Path:
    """The address of MAIL FROM or RCPT TO, and the parameters after it."""

    address: str
    parameters: dict[str, str]


def parse_path(word: str, argument: str) -> Path | None:
    """Parse `FROM:<a@b> SIZE=1`; None if it is invalid. A source route is ignored."""
    match = _PATH.fullmatch(argument.strip())
    if match is None or match[1].upper() != word:
        return None
    # Unnecessary quotes are removed (RFC 5321 §4.1.2).
    address = _QUOTED.sub(r"\1@\2", match[3])
    # RFC 5321 §4.1.1.3: the postmaster is the one recipient that needs no domain.
    is_postmaster = word == "TO" and address.lower() == "postmaster"
    if address and not is_postmaster and not _is_address(address):
        return None
    parameters: dict[str, str] = {}
    for part in (match[4] or "").split():
        name, _, value = part.partition("=")
        parameters[name.upper()] = value
    return Path(address, parameters)


def _is_address(text: str) -> bool:
    if len(text) > MAX_ADDRESS_CHARS or any(c.isspace() or not c.isprintable() for c in text):
        return False
    try:
        name, _ = parse_address(text)
    except InvalidInput:
        # Unusual sender addresses are accepted as long as they are one line.
        return text.count("@") >= 1
    return not name


def has_bare_newline(data: bytes | bytearray) -> bool:
    """Whether there is a CR or LF by itself, which SMTP smuggling uses."""
    pairs = data.count(b"\r\n")
    return not pairs == data.count(b"\n") == data.count(b"\r")


def has_long_line(data: bytes, max_bytes: int) -> bool:
    """Whether a line, without its end, is longer than the limit."""
    start = 0
    while len(data) - start > max_bytes + 2:
        end = data.rfind(b"\n", start, start + max_bytes + 2)
        if end < 0:
            return True
        start = end + 1
    return False


def unstuffed(data: bytes) -> bytes:
    """The mail with dot-stuffing removed (RFC 5321 §4.5.2)."""
    whole = data.replace(b"\r\n.", b"\r\n")
    return whole[1:] if whole.startswith(b".") else whole


_RECEIVED = re.compile(rb"^received:", re.IGNORECASE | re.MULTILINE)


def hops(data: bytes) -> int:
    """The number of Received headers."""
    return len(_RECEIVED.findall(data[: data.find(b"\r\n\r\n")]))


_PAUSE_AT = 1 << 18
_ABORT_AFTER_S = 10.0


class ClientDisconnected(Exception):
    """The client closed the connection, or it broke."""


class Wire(asyncio.Protocol):
    """A buffered connection. Data from before TLS is never treated as data from after it."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._changed = asyncio.Event()
        self._is_gone = False
        self._can_write = asyncio.Event()
        self._can_write.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > _PAUSE_AT and self._transport is not None:
            self._transport.pause_reading()
        self._changed.set()

    def eof_received(self) -> bool:
        self._is_gone = True
        self._changed.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_gone = True
        self._changed.set()
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

    async def wait_for_data(self, within_s: float) -> None:
        """Wait for more bytes.

        Raises:
            ClientDisconnected: the connection ended.
            TimeoutError: no bytes arrived in time.
        """
        assert self._transport is not None
        if self._is_gone:
            raise ClientDisconnected
        self._changed.clear()
        self._transport.resume_reading()
        before = len(self.buffer)
        async with asyncio.timeout(within_s):
            await self._changed.wait()
        if len(self.buffer) == before and self._is_gone:
            raise ClientDisconnected

    async def send(self, data: bytes, within_s: float) -> None:
        """Write, and wait a limited time for the client to read.

        Raises:
            ClientDisconnected: the client disconnected, or does not read.
        """
        if self._is_gone or self._transport is None:
            raise ClientDisconnected
        self._transport.write(data)
        try:
            async with asyncio.timeout(within_s):
                await self._can_write.wait()
        except TimeoutError:
            self._transport.abort()
            raise ClientDisconnected from None

    async def start_tls(self, context: ssl.SSLContext, within_s: float) -> None:
        """Start TLS.

        Raises:
            ClientDisconnected: the handshake failed, or data was received before it.
        """
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within_s):
                upgraded = await loop.start_tls(self._transport, self, context, server_side=True)
        except (OSError, TimeoutError) as error:
            raise ClientDisconnected from error
        if upgraded is None or self.buffer:
            self.close()
            raise ClientDisconnected
        self._transport = upgraded

    def close(self) -> None:
        """Close the connection, even if the client does not read."""
        if self._transport is None:
            return
        self._transport.close()
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_ABORT_AFTER_S, self._transport.abort)


_END = b"\r\n.\r\n"


@dataclass(slots=True)
class Spool(SpooledBytes):
    """The bytes of one mail while it is received."""

    async def fill(self, wire: Wire, idle_s: float, whole_s: float) -> None:
        """Read up to the final dot. Raises what `Wire.wait_for_data` raises."""
        loop = asyncio.get_running_loop()
        until = loop.time() + whole_s
        buffer, start = wire.buffer, 0
        while (end := self._end(buffer, start)) < 0:
            if len(buffer) > MEMORY_BYTES:
                chunk = bytes(buffer[: -len(_END)])
                del buffer[: len(chunk)]
                await self.put(chunk)
                start = 0
                continue
            start = max(0, len(buffer) - len(_END))
            await wire.wait_for_data(min(idle_s, until - loop.time()))
        self.end(bytes(buffer[:end]))
        del buffer[: end + 3]

    def _end(self, buffer: bytearray, start: int) -> int:
        """Where the line with the final dot begins; -1 if it has not arrived."""
        if not self.size and buffer.startswith(_END[2:]):
            return 0
        found = buffer.find(_END, start)
        return found + 2 if found >= 0 else -1


@dataclass(slots=True, kw_only=True)
class Spools(MemoryBudget):
    """Where mail is spooled, and how many bytes of large mails are in memory at once."""

    folder: pathlib.Path
    max_bytes: int

    def new(self) -> Spool:
        return Spool(self.folder, self.max_bytes)


MAX_TEXT_LINE_BYTES = 1_048_576
"""RFC 5321 §4.5.3.1.6 allows 1,000, and real mail has whole pages in a line."""

MAX_HOPS = 50


class FailureLog(Protocol):
    """Logs a failure together with the connection."""

    def __call__(self, name: str, *, cause: Exception | None = None, **context: object) -> None: ...


@dataclass(slots=True)
class Envelope:
    """The sender of a mail, and the inbox of each recipient in order."""

    sender: str
    inboxes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Stores the mails of one connection."""

    batch_ingest: BatchIngest
    failed: FailureLog

    async def deliver(self, envelope: Envelope, spool: Spool) -> list[str]:
        """Store a mail and return the reply for each recipient."""
        try:
            content = await spool.read()
            if content is None:
                words = _PROBLEMS[TooLarge]
            elif (problem := self._wrong_content(content)) is not None:
                words = problem
            else:
                return await self._stored(envelope, unstuffed(content))
        except Exception as error:  # noqa: BLE001 - the sender tries again, the log says why
            words = self._reply_for(error)
        return [words] * len(envelope.inboxes)

    def _wrong_content(self, content: bytes) -> str | None:
        if has_bare_newline(content):
            self.failed("smtp_smuggled", reason="a bare CR or LF")
            return "554 5.6.0 bare CR or LF in the mail; end lines with CRLF"
        if hops(content) > MAX_HOPS:
            self.failed("smtp_looping", hops=hops(content))
            return "554 5.4.6 mail loop detected: too many Received headers"
        if has_long_line(content, MAX_TEXT_LINE_BYTES):
            return "554 5.6.0 line too long; use base64 or quoted-printable"
        return None

    async def _stored(self, envelope: Envelope, raw: bytes) -> list[str]:
        if not envelope.sender:
            # RFC 5321 §4.4: only the envelope shows that this mail must not be answered.
            raw = b"Return-Path: <>\r\n" + raw
        inboxes = list(dict.fromkeys(envelope.inboxes))
        results = await self.batch_ingest.receive(
            [Arrival(raw, inbox_id, envelope_sender=envelope.sender) for inbox_id in inboxes]
        )
        words = dict(zip(inboxes, map(self._reply_for, results), strict=True))
        return [words[inbox_id] for inbox_id in envelope.inboxes]

    def _reply_for(self, result: Added | Exception) -> str:
        """The SMTP reply for a stored mail, or for an error."""
        if isinstance(result, Added):
            return f"250 2.0.0 stored as {result.message_id}"
        if not isinstance(result, MailError):
            self.failed("smtp_failed", cause=result)
            return "451 4.3.0 internal error; try again later"
        kinds = (words for kind, words in _PROBLEMS.items() if isinstance(result, kind))
        words = next(kinds, "451 4.3.0 the message cannot be stored now; try again later")
        if words.startswith("4"):
            self.failed("smtp_failed", error=str(result))
        return words


def combined_reply(answers: Sequence[str]) -> str:
    """The single SMTP reply for several recipients. A temporary failure of one makes the sender try
    again, and duplicates are recognised. Otherwise one success is enough: the other inboxes were
    removed meanwhile.
    """
    return min(answers, key=lambda words: "425".index(words[0]))


_PROBLEMS: Mapping[type[MailError], str] = {
    StorageFull: "452 4.3.1 the disk is full; try again later",
    TooLarge: "552 5.3.4 message size exceeds the limit",
    NotFound: "550 5.1.1 the mailbox no longer exists",
    InvalidInput: "554 5.6.0 the message is empty",
}
