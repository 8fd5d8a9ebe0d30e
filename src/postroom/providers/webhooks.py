"""Webhook requests over HTTP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import field

from postroom.model.event import Posted
from postroom.model.values import dataclass, late_pattern
from postroom.providers.allowed_hosts import Guard, Target, connection_error, parse_target

TIMEOUT_S = 15.0
_MAX_LINE_BYTES = 8_192
_SWITCHING_PROTOCOLS = 101
_NOT_HTTP = "the response is not HTTP"
_STATUS = late_pattern(rb"HTTP/1\.[01] (\d{3})(?: ([ -~]{0,100}))?")


@dataclass(frozen=True, slots=True)
class HttpPoster:
    """Posts to allowed addresses. Redirects are not followed."""

    guard: Guard = field(default_factory=Guard)
    timeout_s: float = TIMEOUT_S

    def check(self, url: str) -> None:
        self.guard.check(url)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._post(parse_target(url), headers, body)
        except TimeoutError:
            return Posted(None, f"no response within {self.timeout_s:.0f} s")
        except asyncio.LimitOverrunError:
            return Posted(None, _NOT_HTTP)
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, ValueError) as error:
            return Posted(None, f"no response: {connection_error(error)}"[:300])

    async def _post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Posted:
        address = await self.guard.resolve(target.host, target.port)
        if address is None:
            return Posted(None, "refused: the host has an address that is not public")
        reader, writer = await asyncio.open_connection(
            str(address),
            target.port,
            ssl=ssl.create_default_context() if target.is_encrypted else None,
            server_hostname=target.host if target.is_encrypted else None,
            limit=_MAX_LINE_BYTES,
        )
        try:
            writer.write(_request(target, headers, body))
            await writer.drain()
            return await _read_response(reader)
        finally:
            writer.close()


async def _read_response(reader: asyncio.StreamReader) -> Posted:
    """Read the final response; interim responses (1xx) are skipped."""
    while True:
        match = _STATUS.match(await reader.readuntil(b"\n"))
        if match is None:
            return Posted(None, _NOT_HTTP)
        code = int(match[1])
        if not 100 <= code < 200 or code == _SWITCHING_PROTOCOLS:
            return Posted(code, (match[2] or b"").decode())
        while (await reader.readuntil(b"\n")).strip():
            pass


def _request(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        "Connection: close",
        "User-Agent: postroom",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body
