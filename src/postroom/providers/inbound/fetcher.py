"""One GET over HTTPS, to the address that was checked and to no other."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from postroom.blocking import in_own_thread
from postroom.errors import ProviderError, ProviderTimeout
from postroom.providers.webhooks.guard import Guard, Target, parse_target

PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class HttpsFetcher:
    """Reads from public addresses only, however a provider spells them."""

    guard: Guard
    most_bytes: int
    patience_s: float = PATIENCE_S
    make_context: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context)

    async def get(self, url: str, headers: Mapping[str, str]) -> bytes:
        target = parse_target(url)
        if not target.is_encrypted:
            raise ProviderError("a provider names a URL without TLS; that is not followed")
        try:
            address = await self.guard.resolve(target.host, target.port)
            if address is None:
                raise ProviderError(f"{target.host} is not on the public Internet")
            return await in_own_thread(self._read, target, str(address), dict(headers))
        except TimeoutError as error:
            raise ProviderTimeout(f"no answer from {target.host}") from error
        except (OSError, http.client.HTTPException) as error:
            raise ProviderError(f"{target.host} cannot be read: {error}") from error

    def _read(self, target: Target, address: str, headers: dict[str, str]) -> bytes:
        connection = http.client.HTTPConnection(target.host, target.port, timeout=self.patience_s)
        with socket.create_connection((address, target.port), self.patience_s) as plain:
            context = self.make_context()
            with context.wrap_socket(plain, server_hostname=target.host) as encrypted:
                connection.sock = encrypted
                connection.request("GET", target.path, headers=headers)
                return self._body(target, connection.getresponse())

    def _body(self, target: Target, response: http.client.HTTPResponse) -> bytes:
        if response.status != 200:
            raise ProviderError(f"{target.host} said {response.status} {response.reason}"[:200])
        body = response.read(self.most_bytes + 1)
        if len(body) > self.most_bytes:
            raise ProviderError(f"{target.host} has more than {self.most_bytes} bytes for us")
        return body
