"""Requests to the API of a provider: rate limits, retries, errors, the shape of responses."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, cast
from urllib.parse import urlsplit

import httpx2
import msgspec

from postroom.errors import (
    NotFound,
    ProviderAuthFailed,
    ProviderError,
    ProviderTimeout,
    RateLimited,
)
from postroom.model.account import RateLimits
from postroom.model.limits import TOO_DEEP, is_shallow
from postroom.providers.allowed_hosts import is_loopback_address

log = logging.getLogger(__name__)

C = TypeVar("C")
F = TypeVar("F", bound=Callable[..., Any])
_SHAPE_ERRORS = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
_REQUESTING = (
    "check", "identities", "changes", "fetch", "push", "save_sent", "read_states", "wait",
    "create_alias",
)  # fmt: skip
"""The methods of a provider that send requests."""


@contextmanager
def response_errors(provider: str) -> Iterator[None]:
    """Report a response without the documented shape as ProviderError.

    Fields of responses are not checked one by one; a missing one raises KeyError.
    """
    try:
        yield
    except _SHAPE_ERRORS as error:
        log.warning("provider.unexpected_response", exc_info=True)
        raise ProviderError(
            f"unexpected response from {provider}: a field is missing or malformed"
        ) from error


def checks_responses(provider: str) -> Callable[[type[C]], type[C]]:
    """Decorate a class so that its requests run inside `response_errors`."""

    def decorate(cls: type[C]) -> type[C]:
        for name in _REQUESTING:
            if hasattr(cls, name):
                setattr(cls, name, checks_response(provider)(getattr(cls, name)))
        return cls

    return decorate


def checks_response(provider: str) -> Callable[[F], F]:
    """Decorate a coroutine or an asynchronous generator to run inside `response_errors`."""

    def decorate(request: F) -> F:
        @functools.wraps(request)
        async def checked(*args: Any, **kwargs: Any) -> Any:
            with response_errors(provider):
                return await request(*args, **kwargs)

        @functools.wraps(request)
        async def checked_stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            with response_errors(provider):
                async with aclosing(request(*args, **kwargs)) as parts:
                    async for part in parts:
                        yield part

        return cast(F, checked_stream if inspect.isasyncgenfunction(request) else checked)

    return decorate


def message_count(value: Any) -> int | None:
    """A number of messages; None if the value cannot be one."""
    return value if type(value) is int and 0 <= value < 2**53 else None


TOKEN_HOSTS: Mapping[str, tuple[str, ...]] = {
    # Fastmail answers from the data centre of the mailbox (phl.api.fastmail.com) and serves
    # downloads from another domain (www.fastmailusercontent.com).
    "api.fastmail.com": (".api.fastmail.com", ".fastmailusercontent.com"),
}
"""Other hosts that get the token, by the configured host; a dot matches every subdomain."""

UPLOAD_HOSTS: Mapping[str, tuple[str, ...]] = {
    "graph.microsoft.com": ("outlook.office.com", "outlook.office365.com"),
    "graph.microsoft.us": ("outlook.office365.us",),
    "dod-graph.microsoft.us": ("outlook-dod.office365.us",),
    "microsoftgraph.chinacloudapi.cn": ("partner.outlook.cn",),
}
"""Upload hosts of Microsoft Graph. An upload URL is itself secret; it gets no token."""


def check_url(url: str, base: str, others: Mapping[str, tuple[str, ...]]) -> httpx2.URL:
    """Parse a URL that a provider named. Raises ProviderError unless it has the origin of *base*.

    It is parsed by the client that sends the request, so that both see the same host.
    """
    try:
        there, here = httpx2.URL(url), httpx2.URL(base)
    except (httpx2.InvalidURL, ValueError, TypeError):
        raise ProviderError("the provider named an invalid URL") from None
    known = others.get(here.host, ()) if _origin(here) == ("https", here.host, 443) else ()
    host = there.host.rstrip(".")
    is_known = _origin(there) == ("https", host, 443) and any(
        host.endswith(name) if name.startswith(".") else host == name for name in known
    )
    if there.userinfo or not (_origin(there) == _origin(here) or is_known):
        raise ProviderError("the provider named a URL at another host; no login is sent there")
    return there


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    default = 443 if url.scheme == "https" else 80
    return url.scheme, url.host.rstrip("."), url.port or default


T = TypeVar("T")
MAX_BYTES = 50 * 2**20
MAX_WAIT_S = 60
"""A longer wait that a provider asks for is reported to the caller."""

_ATTEMPTS = 4
_TIMEOUT = httpx2.Timeout(60.0, connect=30.0)
_UNAVAILABLE = 503
BUSY = (429, _UNAVAILABLE)
_MAX_DETAIL_CHARS = 300


class ApiRefused(ProviderError):
    """The provider rejected the request; a retry would not help."""

    retryable = False

    def __init__(self, message: str, *, status: int, reason: str = "", body: Any = None) -> None:
        super().__init__(message, status=status, provider_said=reason)
        self.status = status
        self.reason = reason
        self.body = body


async def none_if_404(response: Awaitable[T]) -> T | None:
    """Wait for a response; None if the provider answers 404."""
    try:
        return await response
    except ApiRefused as refusal:
        if refusal.status == 404:
            return None
        raise


@contextmanager
def message_errors(key: str) -> Iterator[None]:
    """Report the 404 of a message as NotFound."""
    try:
        yield
    except ApiRefused as refusal:
        if refusal.status == 404:
            raise NotFound(f"the provider no longer has the message {key}") from refusal
        raise


class Authorizer(Protocol):
    """Provides the Authorization header of requests."""

    async def header(self) -> str: ...
    async def renew(self, refused: str) -> bool:
        """Replace a header that was refused; False if there is no other."""


@dataclass(frozen=True, slots=True)
class FixedHeader:
    """An Authorization header that never changes."""

    value: str = field(repr=False)

    async def header(self) -> str:
        return self.value

    async def renew(self, refused: str) -> bool:
        return False


@dataclass(slots=True)
class RateLimiter:
    """Delays requests so that they stay within the limits of a provider."""

    rates: RateLimits
    _paused_until: float = 0.0
    _next: float = 0.0

    async def acquire(self) -> None:
        """Wait until the next request may be sent."""
        now = asyncio.get_running_loop().time()
        gap = 1.0 / self.rates.requests_per_second
        self._next = max(self._next, now - gap * self.rates.burst) + gap
        wait_s = max(self._next, self._paused_until) - now
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    @property
    def paused_s(self) -> float:
        """For how many more seconds no request may be sent."""
        return max(0.0, self._paused_until - asyncio.get_running_loop().time())

    def pause(self, seconds: float) -> None:
        """Send no request for this long."""
        until = asyncio.get_running_loop().time() + seconds
        self._paused_until = max(self._paused_until, until)


class RequestOptions(TypedDict, total=False):
    """What a request may carry."""

    params: Mapping[str, Any] | None
    content: bytes | None
    headers: Mapping[str, str]


@dataclass(eq=False)
class Api:
    """The API of a provider for one account. All users of an account share one `limiter`."""

    account_id: str
    base: str
    authorizer: Authorizer
    limiter: RateLimiter
    max_wait_s: int = MAX_WAIT_S
    max_bytes: int = MAX_BYTES
    _http: httpx2.AsyncClient | None = None

    def __post_init__(self) -> None:
        require_https(self.base)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        once: bool = False,
        **options: Unpack[RequestOptions],
    ) -> Any:
        """Send a request and decode the JSON of the response; None if the response is empty."""
        if body is not None:
            options["content"] = msgspec.json.encode(body)
            json_type = {"Content-Type": "application/json"}
            options["headers"] = {**json_type, **options.get("headers", {})}
        data = await self.request(method, path, once=once, **options)
        return self._decode(data) if data.strip() else None

    async def request(
        self, method: str, path: str, *, once: bool = False, **options: Unpack[RequestOptions]
    ) -> bytes:
        """Send a request and return the body of the response; retry after the wait that a busy
        provider asks for.

        With *once*, 503 is not retried: the provider may have executed the request.

        Raises:
            ApiRefused: the provider rejected the request.
            ProviderAuthFailed, ProviderTimeout, ProviderError, RateLimited.
        """
        for attempt in range(_ATTEMPTS):
            status, headers, data = await self._request_once(method, path, options)
            if status < 400:
                return data
            is_busy = status in BUSY or (status == 403 and b"ateLimitExceeded" in data)
            wait_s = retry_after(headers.get("Retry-After"), datetime.now(UTC))
            if is_busy:
                self.limiter.pause(wait_s)
            if not is_busy or (once and status == _UNAVAILABLE):
                # Some providers repeat our token.
                secret = (await self.authorizer.header()).rpartition(" ")[2].encode()
                raise self._refusal(status, data.replace(secret, b"...") if secret else data)
            if wait_s > self.max_wait_s or attempt == _ATTEMPTS - 1:
                raise self._rate_limited(wait_s)
        raise AssertionError("unreachable")

    def rate_limited(self, headers: httpx2.Headers) -> RateLimited:
        """The error for a response that asks us to wait; requests pause until then."""
        wait_s = retry_after(headers.get("Retry-After"), datetime.now(UTC))
        self.limiter.pause(wait_s)
        return self._rate_limited(wait_s)

    def _rate_limited(self, wait_s: int) -> RateLimited:
        message = f"{self.account_id}: rate limit of the provider; retry in {wait_s} s"
        return RateLimited(message, retry_after=wait_s)

    async def _request_once(
        self, method: str, path: str, options: RequestOptions
    ) -> tuple[int, httpx2.Headers, bytes]:
        for is_last in (False, True):
            login = await self.authorizer.header()
            async with self.stream(method, path, authorization=login, **options) as response:
                data = await self._read_body(response)
            if response.status_code != 401:
                return response.status_code, response.headers, data
            if is_last or not await self.authorizer.renew(login):
                break
        raise ProviderAuthFailed(f"{self.account_id}: the provider does not accept the login")

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        authorization: str | None = None,
        read_s: float | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncIterator[httpx2.Response]:
        """Send a request, to hosts of the provider only, and stream the response."""
        # "//host" is a URL that the provider named, and not a path.
        is_path = path.startswith("/") and path[1:2] != "/"
        url = check_url(self.base + path if is_path else path, self.base, TOKEN_HOSTS)
        if self.limiter.paused_s > self.max_wait_s:
            raise self._rate_limited(math.ceil(self.limiter.paused_s))
        await self.limiter.acquire()
        if self._http is None:
            self._http = httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False)
        authorization = authorization or await self.authorizer.header()
        options["headers"] = {**options.get("headers", {}), "Authorization": authorization}
        timeout = _TIMEOUT if read_s is None else httpx2.Timeout(read_s, connect=30.0)
        try:
            async with self._http.stream(method, url, timeout=timeout, **options) as response:
                yield response
        except httpx2.TimeoutException as error:
            raise ProviderTimeout(f"{self.account_id}: the provider did not answer") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            kind = type(error).__name__
            raise ProviderError(f"{self.account_id}: no response: {kind}") from error

    async def _read_body(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > self.max_bytes:
                problem = f"the response is larger than {self.max_bytes} bytes"
                raise ProviderError(f"{self.account_id}: {problem}")
        return bytes(body)

    def _decode(self, data: bytes) -> Any:
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise ProviderError(f"{self.account_id}: the response is not valid JSON") from error
        if not is_shallow(value):
            raise ProviderError(f"{self.account_id}: the response is {TOO_DEEP}")
        return value

    def _refusal(self, status: int, data: bytes) -> ProviderError:
        try:
            body = self._decode(data) if data.strip() else None
        except ProviderError:
            body = None
        reason, text = _error_of(body)
        message = f"{self.account_id}: the provider answered {status} {text or reason}".rstrip()
        if status >= 500:
            return ProviderError(message, status=status)
        return ApiRefused(message, status=status, reason=reason, body=body)


def _error_of(body: Any) -> tuple[str, str]:
    """The code and the text in an error response of Google, Microsoft or JMAP."""
    if not isinstance(body, dict):
        return "", ""
    error = body.get("error", body)
    if isinstance(error, dict):
        code = error.get("code") or error.get("status") or error.get("type") or ""
        text = error.get("message") or error.get("detail") or ""
    else:
        code, text = error, body.get("error_description", "")
    return str(code)[:_MAX_DETAIL_CHARS], str(text)[:_MAX_DETAIL_CHARS]


def retry_after(value: str | None, now: datetime) -> int:
    """The seconds in a Retry-After header, a number or a date (RFC 9110 §10.2.3); 5 by default."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), 86_400)
    try:
        return max(1, min(int((parsedate_to_datetime(text) - now).total_seconds()) + 1, 86_400))
    except (ValueError, TypeError):
        return 5


def require_https(url: str) -> None:
    """Refuse a URL that would send a token unencrypted to another machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and (host == "localhost" or is_loopback_address(host)):
        return
    raise ProviderError(f"{parts.scheme}://{parts.hostname} is not encrypted; use https")
