"""One POST over HTTP/1.1, to the address that was checked and to no other."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from postroom.model.webhook import Posted
from postroom.providers.faults import why
from postroom.providers.webhooks.guard import Guard, Target, parse_target

PATIENCE_S = 15.0
_MOST_LINE_BYTES = 8_192
_SWITCHED = 101
_NOT_HTTP = "the answer is not HTTP"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([ -~]{0,100}))?")


@dataclass(frozen=True, slots=True)
class HttpPoster:
    """Looks a name up once, checks every address it has, and connects to the one it checked.

    Redirects are answers like any other: whoever moves says so to us, not to our client.
    """

    guard: Guard = field(default_factory=Guard)
    patience_s: float = PATIENCE_S

    def check(self, url: str) -> None:
        self.guard.check(url)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Posted:
        try:
            async with asyncio.timeout(self.patience_s):
                return await self._post(parse_target(url), headers, body)
        except TimeoutError:
            return Posted(None, f"no answer within {self.patience_s:.0f} s")
        except asyncio.LimitOverrunError:
            return Posted(None, _NOT_HTTP)
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, ValueError) as error:
            return Posted(None, f"no answer: {why(error)}"[:300])

    async def _post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Posted:
        address = await self.guard.resolve(target.host, target.port)
        if address is None:
            return Posted(None, "refused: the name leads to an address that is not public")
        reader, writer = await asyncio.open_connection(
            str(address),
            target.port,
            ssl=ssl.create_default_context() if target.is_encrypted else None,
            server_hostname=target.host if target.is_encrypted else None,
            limit=_MOST_LINE_BYTES,
        )
        try:
            writer.write(_request(target, headers, body))
            await writer.drain()
            return await _read_answer(reader)
        finally:
            writer.close()


async def _read_answer(reader: asyncio.StreamReader) -> Posted:
    """The answer that counts: those before it (1xx) only say that it is still to come."""
    while True:
        posted = _answer(await reader.readuntil(b"\n"))
        if posted.code is None or not 100 <= posted.code < 200 or posted.code == _SWITCHED:
            return posted
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


def _answer(line: bytes) -> Posted:
    match = _STATUS.match(line)
    if match is None:
        return Posted(None, _NOT_HTTP)
    return Posted(int(match[1]), (match[2] or b"").decode())
