"""Fetches URLs that others name, over HTTPS and from public addresses only."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from postroom.errors import ProviderError, ProviderTimeout
from postroom.providers.allowed_hosts import Address, Guard, Target, connection_error, parse_target

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class HttpsFetcher:
    """Sends GET requests to public addresses only; redirects are not followed.

    `timeout_s` is for the whole of it, whether nothing comes or a byte a second.
    """

    guard: Guard
    max_bytes: int
    timeout_s: float = TIMEOUT_S
    make_context: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context)

    async def get(self, url: str, headers: Mapping[str, str]) -> bytes:
        """The whole response. Raises ProviderError, InvalidInput."""
        import httpx2  # late, for a quick start

        target = parse_target(url)
        if not target.is_encrypted:
            raise ProviderError(f"{target.host} is named without TLS")
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
