"""HTTP requests to URLs that others name: webhooks are posted, documents and mail are fetched."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from postroom.errors import ProviderError, ProviderTimeout
from postroom.model.event import WebhookResponse
from postroom.model.values import late_pattern
from postroom.providers.allowed_hosts import (
    Address,
    AddressGuard,
    Target,
    connection_error,
    parse_target,
)

_POST_TIMEOUT_S = 15.0
_MAX_LINE_BYTES = 8_192
_SWITCHING_PROTOCOLS = 101
_NOT_HTTP = "the response is not HTTP"
_STATUS = late_pattern(rb"HTTP/1\.[01] (\d{3})(?: ([ -~]{0,100}))?")


@dataclass(frozen=True, slots=True)
class HttpWebhookClient:
    """Posts to allowed addresses. Redirects are not followed."""

    guard: AddressGuard = field(default_factory=AddressGuard)
    timeout_s: float = _POST_TIMEOUT_S

    def check(self, url: str) -> None:
        self.guard.check(url)

    def public(self) -> HttpWebhookClient:
        return HttpWebhookClient(timeout_s=self.timeout_s)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._post(parse_target(url), headers, body)
        except TimeoutError:
            return WebhookResponse(None, f"no response within {self.timeout_s:.0f} s")
        except asyncio.LimitOverrunError:
            return WebhookResponse(None, _NOT_HTTP)
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, ValueError) as error:
            return WebhookResponse(None, f"no response: {connection_error(error)}"[:300])

    async def _post(
        self, target: Target, headers: Mapping[str, str], body: bytes
    ) -> WebhookResponse:
        address = await self.guard.resolve(target.host, target.port)
        if address is None:
            return WebhookResponse(None, "refused: the host has an address that is not public")
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


async def _read_response(reader: asyncio.StreamReader) -> WebhookResponse:
    """Read the final response; interim responses (1xx) are skipped."""
    while True:
        match = _STATUS.match(await reader.readuntil(b"\n"))
        if match is None:
            return WebhookResponse(None, _NOT_HTTP)
        code = int(match[1])
        if not 100 <= code < 200 or code == _SWITCHING_PROTOCOLS:
            return WebhookResponse(code, (match[2] or b"").decode())
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


_FETCH_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class HttpsFetcher:
    """Sends GET requests to public addresses only; redirects are not followed.

    `timeout_s` is for the whole of it, whether nothing comes or a byte a second.
    """

    guard: AddressGuard
    max_bytes: int
    timeout_s: float = _FETCH_TIMEOUT_S
    make_context: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context)

    async def get(self, url: str, headers: Mapping[str, str]) -> bytes:
        """The whole response. Raises ProviderError, InvalidInput."""
        import httpx2  # late, for a quick start

        target = parse_target(url)
        if not target.is_encrypted:
            raise ProviderError(
                f"the URL of {target.host} is not https; nothing is fetched without TLS"
            )
        try:
            async with asyncio.timeout(self.timeout_s):
                address = await self.guard.resolve(target.host, target.port)
                if address is None:
                    raise ProviderError(f"{target.host} is not on the public Internet")
                return await self._read(target, address, headers)
        except TimeoutError as error:
            raise ProviderTimeout(f"no response from {target.host}") from error
        except (OSError, ValueError, httpx2.HTTPError) as error:
            reason = connection_error(error)
            raise ProviderError(f"{target.host} cannot be read: {reason}"[:300]) from error

    async def _read(self, target: Target, address: Address, headers: Mapping[str, str]) -> bytes:
        """Connect to the address that was checked; the certificate must be that of the host."""
        import httpx2

        host = f"[{address}]" if address.version == 6 else str(address)
        own = {"Host": target.authority, "Accept-Encoding": "identity", "User-Agent": "postroom"}
        async with (
            httpx2.AsyncClient(
                verify=self.make_context(), trust_env=False, timeout=self.timeout_s
            ) as http,
            http.stream(
                "GET",
                f"https://{host}:{target.port}{target.path}",
                headers={**own, **headers},
                extensions={"sni_hostname": target.host},
                follow_redirects=False,
            ) as response,
        ):
            if response.status_code != 200:
                answer = f"{response.status_code} {response.reason_phrase}"
                raise ProviderError(f"{target.host} answered {answer}"[:200])
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > self.max_bytes:
                    limit = f"larger than {self.max_bytes} bytes"
                    raise ProviderError(f"the response of {target.host} is {limit}")
            return bytes(body)
