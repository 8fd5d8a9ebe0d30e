"""One SMTP connection: lines, commands and replies."""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass
from typing import cast

from postroom.errors import InvalidInput
from postroom.mail.addresses import parse_address

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


def has_long_line(data: bytes, most: int) -> bool:
    """Whether a line, without its end, is longer than the limit."""
    start = 0
    while len(data) - start > most + 2:
        end = data.rfind(b"\n", start, start + most + 2)
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
_LEAVE_S = 10.0


class Gone(Exception):
    """The client closed the connection, or it broke."""


class Wire(asyncio.Protocol):
    """A buffered connection. Data from before TLS is never treated as data from after it."""

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
        """Wait for more bytes.

        Raises:
            Gone: the connection ended.
            TimeoutError: no bytes arrived in time.
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
        """Write, and wait a limited time for the client to read.

        Raises:
            Gone: the client disconnected, or does not read.
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
        """Start TLS.

        Raises:
            Gone: the handshake failed, or data was received before it.
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
        """Close the connection, even if the client does not read."""
        if self._transport is None:
            return
        self._transport.close()
        if self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(_LEAVE_S, self._transport.abort)
