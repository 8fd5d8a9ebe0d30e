"""Fetches mail that a provider stored for us: over HTTPS, or from a bucket."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from postroom.blocking import in_own_thread
from postroom.errors import (
    InvalidInput,
    ProviderAuthFailed,
    ProviderError,
    ProviderTimeout,
    TooLarge,
    in_our_words,
)
from postroom.providers.allowed_hosts import Guard, Target, parse_target

if TYPE_CHECKING:
    from obstore.store import S3Store  # an extra, which HTTPS does not need

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class HttpsFetcher:
    """Sends GET requests to public addresses only."""

    guard: Guard
    max_bytes: int
    timeout_s: float = TIMEOUT_S
    make_context: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context)

    async def get(self, url: str, headers: Mapping[str, str]) -> bytes:
        target = parse_target(url)
        if not target.is_encrypted:
            raise ProviderError("the provider named a URL without TLS")
        try:
            address = await self.guard.resolve(target.host, target.port)
            if address is None:
                raise ProviderError(f"{target.host} is not on the public Internet")
            return await in_own_thread(self._read, target, str(address), dict(headers))
        except TimeoutError as error:
            raise ProviderTimeout(f"no response from {target.host}") from error
        except (OSError, http.client.HTTPException) as error:
            raise ProviderError(f"{target.host} cannot be read: {error}") from error

    def _read(self, target: Target, address: str, headers: dict[str, str]) -> bytes:
        connection = http.client.HTTPConnection(target.host, target.port, timeout=self.timeout_s)
        with socket.create_connection((address, target.port), self.timeout_s) as plain:
            context = self.make_context()
            with context.wrap_socket(plain, server_hostname=target.host) as encrypted:
                connection.sock = encrypted
                connection.request("GET", target.path, headers=headers)
                return self._body(target, connection.getresponse())

    def _body(self, target: Target, response: http.client.HTTPResponse) -> bytes:
        if response.status != 200:
            raise ProviderError(f"{target.host} answered {response.status} {response.reason}"[:200])
        body = response.read(self.max_bytes + 1)
        if len(body) > self.max_bytes:
            limit = f"larger than {self.max_bytes} bytes"
            raise ProviderError(f"the response of {target.host} is {limit}")
        return body


_TIMEOUTS: dict[str, Any] = {
    "timeout": "20s",
    "connect_timeout": "5s",
    "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
}
"""Not as `client_options`, which would override `AWS_ALLOW_HTTP` and others in the environment."""

_MAX_KEY_BYTES = 1_024
_KMS_KEY = "x-amz-key"
"""The metadata with the key of a mail that Amazon encrypted with KMS."""


@dataclass(frozen=True, slots=True)
class MailBucket:
    """Reads mail from one bucket."""

    name: str
    store: S3Store
    max_bytes: int

    @classmethod
    def named(cls, name: str, max_bytes: int) -> MailBucket:
        from obstore.store import S3Store

        return cls(name, S3Store(name, **_TIMEOUTS), max_bytes)

    async def read(self, key: str) -> bytes:
        """Read a mail. Raises InvalidInput, TooLarge, ProviderError."""
        if not key or len(key.encode("utf-8", "replace")) > _MAX_KEY_BYTES:
            raise InvalidInput("the notification has no object key of the mail")
        import obstore
        from obstore import exceptions

        try:
            found = await obstore.get_async(self.store, key)
            size = found.meta["size"]
            if size > self.max_bytes:
                raise TooLarge(f"the mail has {size} bytes; the limit is {self.max_bytes}")
            if any(_KMS_KEY in str(name).lower() for name in found.attributes):
                raise InvalidInput("the mail is encrypted; turn that off in the SES receipt rule")
            return bytes(await found.bytes_async())
        except FileNotFoundError as error:
            absent = ProviderError("the bucket does not have this mail yet")
            raise in_our_words(absent) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            refused = ProviderAuthFailed("the bucket refused the login; check its policy")
            raise in_our_words(refused) from error
        except exceptions.BaseError as error:
            silent = ProviderError("the bucket with the mail does not respond; try again")
            raise in_our_words(silent) from error
