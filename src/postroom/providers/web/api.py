"""A provider's HTTP API: paced, limited, and with its refusals in our words."""

from __future__ import annotations

import asyncio
import ipaddress
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx2
import msgspec

from postroom.errors import (
    ProviderAuthFailed,
    ProviderError,
    ProviderTimeout,
    RateLimited,
)
from postroom.model.account import RateLimits

MOST_BYTES = 50 * 2**20
MOST_LEVELS = 64
PATIENCE_S = 60
"""How long we wait by ourselves when a provider wants us to; longer waits are the caller's."""

_TRIES = 4
_TIMEOUT = httpx2.Timeout(60.0, connect=30.0)
_UNAVAILABLE = 503
BUSY = (429, _UNAVAILABLE)
_SHOWN = 300


class ApiRefused(ProviderError):
    """The provider understood and said no; asking again would not help."""

    retryable = False

    def __init__(self, message: str, *, status: int, reason: str = "", body: Any = None) -> None:
        super().__init__(message, status=status, provider_said=reason)
        self.status = status
        self.reason = reason
        self.body = body


class Authorizer(Protocol):
    """Knows what to say about who we are."""

    async def header(self) -> str: ...
    async def renew(self, refused: str) -> bool:
        """Get something better than what was refused; False if there is nothing better."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A header that never changes."""

    value: str = field(repr=False)

    async def header(self) -> str:
        return self.value

    async def renew(self, refused: str) -> bool:
        return False


@dataclass(slots=True)
class Pace:
    """Lets requests through no faster than a provider wants them."""

    rates: RateLimits
    not_before: float = 0.0
    _next: float = 0.0

    async def turn(self) -> None:
        """Wait until the next request may go out."""
        loop = asyncio.get_running_loop()
        gap = 1.0 / self.rates.requests_per_second
        earliest = loop.time() - gap * self.rates.burst
        self._next = max(self._next, earliest) + gap
        wait = max(self._next - loop.time(), self.not_before - loop.time())
        if wait > 0:
            await asyncio.sleep(wait)

    @property
    def held_s(self) -> float:
        """For how long nothing may go out yet."""
        return max(0.0, self.not_before - asyncio.get_running_loop().time())

    def hold(self, seconds: float) -> None:
        """Let nothing through for so long."""
        until = asyncio.get_running_loop().time() + seconds
        self.not_before = max(self.not_before, until)


@dataclass(eq=False)
class Api:
    """One account's way to ask its provider; who asks for the same account shares a pace."""

    account_id: str
    base: str
    authorizer: Authorizer
    rates: RateLimits
    patience_s: int = PATIENCE_S
    most_bytes: int = MOST_BYTES
    pace: Pace | None = None
    _http: httpx2.AsyncClient | None = None
    _pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        refuse_clear_text(self.base)
        self._pace = self.pace or Pace(self.rates)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        once: bool = False,
    ) -> Any:
        """Ask, and read the answer as JSON; None if there is none."""
        sent = dict(headers or {})
        if body is not None:
            content = msgspec.json.encode(body)
            sent.setdefault("Content-Type", "application/json")
        answer = await self.ask(
            method, path, params=params, content=content, headers=sent, once=once
        )
        return self._read(answer) if answer.strip() else None

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        once: bool = False,
    ) -> bytes:
        """Ask, wait if we are told to, and return the bytes of the answer.

        What must not be done twice is asked *once*: who is too busy to answer may have done it
        all the same, and only what was refused for our own haste is asked again.

        Raises:
            ApiRefused: the provider said no.
            ProviderAuthFailed, ProviderTimeout, ProviderError, RateLimited.
        """
        for attempt in range(_TRIES):
            status, answer_headers, data = await self._once(method, path, params, content, headers)
            if status < 400:
                return data
            wait = _asked_to_wait(status, answer_headers, data)
            if wait is not None:
                self._pace.hold(wait)
            if wait is None or (once and status == _UNAVAILABLE):
                raise self._refusal(status, await self._without_login(data))
            if wait > self.patience_s or attempt == _TRIES - 1:
                raise self._limited(wait)
        raise AssertionError("unreachable")

    def told_to_wait(self, headers: httpx2.Headers) -> RateLimited:
        """The error for an answer that tells us to wait; nothing goes out meanwhile."""
        wait_s = retry_after(headers.get("Retry-After"), datetime.now(UTC))
        self._pace.hold(wait_s)
        return self._limited(wait_s)

    def _limited(self, wait_s: int) -> RateLimited:
        return RateLimited(
            f"{self.account_id}: the provider wants us to wait {wait_s} s", retry_after=wait_s
        )

    async def _once(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        content: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> tuple[int, httpx2.Headers, bytes]:
        for is_last in (False, True):
            said = await self.authorizer.header()
            async with self.stream(
                method, path, params=params, content=content, headers=headers, said=said
            ) as response:
                data = await self._bounded(response)
            if response.status_code != 401:
                return response.status_code, response.headers, data
            if is_last or not await self.authorizer.renew(said):
                break
        raise ProviderAuthFailed(f"{self.account_id}: the provider does not accept our login")

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        said: str | None = None,
        read_s: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """An answer that is read while it comes."""
        if self._pace.held_s > self.patience_s:
            raise self._limited(math.ceil(self._pace.held_s))
        await self._pace.turn()
        url = path if path.startswith(("http://", "https://")) else self.base + path
        refuse_clear_text(url)
        if self._http is None:
            self._http = httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False)
        sent = {**(headers or {}), "Authorization": said or await self.authorizer.header()}
        timeout = _TIMEOUT if read_s is None else httpx2.Timeout(read_s, connect=30.0)
        try:
            async with self._http.stream(
                method, url, params=params, content=content, headers=sent, timeout=timeout
            ) as response:
                yield response
        except httpx2.TimeoutException as error:
            raise ProviderTimeout(f"{self.account_id}: the provider did not answer") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            kind = type(error).__name__
            raise ProviderError(f"{self.account_id}: no answer: {kind}") from error

    async def _bounded(self, response: httpx2.Response) -> bytes:
        pieces, size = [], 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > self.most_bytes:
                raise ProviderError(
                    f"{self.account_id}: an answer of more than {self.most_bytes} bytes"
                )
            pieces.append(piece)
        return b"".join(pieces)

    def _read(self, data: bytes) -> Any:
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ProviderError(f"{self.account_id}: the answer is no JSON we can read") from error
        if not is_shallow(value):
            raise ProviderError(f"{self.account_id}: an answer of more than {MOST_LEVELS} levels")
        return value

    async def _without_login(self, data: bytes) -> bytes:
        """What a provider says, without our own login if it repeats it."""
        secret = (await self.authorizer.header()).rpartition(" ")[2].encode()
        return data.replace(secret, b"...") if secret else data

    def _refusal(self, status: int, data: bytes) -> ProviderError:
        try:
            body = self._read(data) if data.strip() else None
        except ProviderError:
            body = None
        reason, text = _said(body)
        message = f"{self.account_id}: the provider said {status} {text or reason}".rstrip()
        if status >= 500:
            return ProviderError(message, status=status)
        return ApiRefused(message, status=status, reason=reason, body=body)


def _asked_to_wait(status: int, headers: httpx2.Headers, data: bytes) -> int | None:
    is_limited = status in BUSY
    if not is_limited and not (status == 403 and b"ateLimitExceeded" in data):
        return None
    return retry_after(headers.get("Retry-After"), datetime.now(UTC))


def is_shallow(value: Any) -> bool:
    """Whether a value has no more levels than any answer that we ask for."""
    level = [value]
    for _ in range(MOST_LEVELS):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        if not inner:
            return True
        level = inner
    return False


def _said(body: Any) -> tuple[str, str]:
    """The short and the long form of what an error of Google, Microsoft or JMAP says."""
    if not isinstance(body, dict):
        return "", ""
    error = body.get("error", body)
    if not isinstance(error, dict):
        return str(error)[:_SHOWN], str(body.get("error_description", ""))[:_SHOWN]
    short = error.get("code") or error.get("status") or error.get("type") or ""
    return str(short)[:_SHOWN], str(error.get("message") or error.get("detail") or "")[:_SHOWN]


def retry_after(value: str | None, now: datetime) -> int:
    """How long to wait: seconds or a date (RFC 9110 §10.2.3); without one, a few seconds."""
    if value is None:
        return 5
    if value.strip().isascii() and value.strip().isdigit():
        return min(int(value.strip()[:9]), 86_400)
    try:
        at = parsedate_to_datetime(value)
        return max(1, min(int((at - now).total_seconds()) + 1, 86_400))
    except (ValueError, TypeError):
        return 5


def refuse_clear_text(url: str) -> None:
    """Refuse a URL over which a token would travel in the clear, except on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and _is_loopback(parts.hostname or ""):
        return
    raise ProviderError(f"{parts.scheme}://{parts.hostname} is not safe; use https")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
