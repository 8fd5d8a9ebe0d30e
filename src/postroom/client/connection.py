"""HTTP between a client and a server: sending, retrying, reading responses and errors.

What is done is decided in `exchange`, a generator that sends nothing itself: it yields a request to
send or the seconds to wait. `Connection` and `AsyncConnection` carry that out.
"""

from __future__ import annotations

import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Generator, Iterator
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import httpx2
from msgspec import DecodeError
from msgspec.json import decode, encode

from postroom.client.method import Call
from postroom.errors import InvalidInput, MailError, Unavailable, error_for

CONNECT_S = 10.0
STREAM_S = 45.0
"""A stream says something every 15 seconds; one that is silent for longer is dead."""

_LONGEST_WAIT_S = 60.0
"""A server that asks for more patience than this is not asked again."""

_AGAIN = (502, 503, 504)
FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError)
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_Reply = httpx2.Response | Exception | None
Exchange = Generator[Call | float, _Reply, httpx2.Response]


def exchange(call: Call, url: str, retries: int) -> Exchange:
    """Send a call, with retries while they may help. Raises MailError."""
    start = time.monotonic()
    for attempt in range(retries + 1):
        elapsed = time.monotonic() - start
        reply = yield call.after(elapsed) if attempt else call
        assert reply is not None
        if isinstance(reply, httpx2.Response) and reply.is_success:
            return reply
        error = _failure(url, reply)
        wait_s = _wait(call, reply, attempt)
        if wait_s is None or attempt == retries:
            raise error
        yield wait_s
    raise AssertionError("not reached")


def _failure(url: str, reply: httpx2.Response | Exception) -> MailError:
    return (
        error_of(url, reply)
        if isinstance(reply, httpx2.Response)
        else unreachable_error(url, reply)
    )


def _wait(call: Call, reply: httpx2.Response | Exception, attempt: int) -> float | None:
    """The seconds until the next attempt; None if there must not be one."""
    backoff = random.uniform(0.25, 0.5) * 2**attempt
    if isinstance(reply, Exception):
        return backoff if call.repeatable or isinstance(reply, _UNSENT) else None
    again = reply.status_code == 429 or (call.repeatable and reply.status_code in _AGAIN)
    asked = retry_after(reply)
    if not again or (asked or 0) > _LONGEST_WAIT_S:
        return None
    return backoff if asked is None else float(asked)


def retry_after(response: httpx2.Response) -> int | None:
    """The seconds of the header Retry-After, which may also be a date."""
    stated = response.headers.get("retry-after", "").strip()
    if stated.isascii() and stated.isdigit():
        return int(stated[:9])
    try:
        moment = parsedate_to_datetime(stated).timestamp()
    except (TypeError, ValueError):
        return None
    return max(0, round(moment - time.time()))


def unreachable_error(url: str, error: Exception) -> MailError:
    """The error of a request without response."""
    if isinstance(error, (httpx2.UnsupportedProtocol, httpx2.InvalidURL)):
        return invalid_url_error(url)
    if isinstance(error, httpx2.TimeoutException):
        return Unavailable(f"{url}: no response in time; try again", retry_after=5)
    said = str(error).rstrip(".") or type(error).__name__
    hint = "is the server running there?"
    if "WRONG_VERSION_NUMBER" in said:
        said, hint = "the server there does not use TLS", "write http:// in place of https://"
    return Unavailable(f"{url} cannot be reached: {said}; {hint}", retry_after=5)


def error_of(url: str, response: httpx2.Response) -> MailError:
    """The error in a response; for a response of another program, it names the program."""
    body = read_json(response.content)
    status = response.status_code
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        return foreign_response_error(url, response)
    asked = retry_after(response)
    names = {"request_id": "request_id", "errors": "problems"}
    error = error_for(
        body["code"],
        str(body.get("detail", f"HTTP {status}")),
        retry_after=1 if asked is None else asked,
        **{name: body[member] for member, name in names.items() if member in body},
    )
    error.is_untrusted = error.is_untrusted or "untrusted" in body
    return error


def foreign_response_error(url: str, response: httpx2.Response) -> MailError:
    """The error for a response that is not from Postroom."""
    status = response.status_code
    media_type = response.headers.get("content-type", "no content type").partition(";")[0]
    if status in _AGAIN:
        asked = retry_after(response)
        message = f"{url}: HTTP {status} ({media_type}) from a proxy; the server may be down"
        return Unavailable(message, retry_after=5 if asked is None else asked)
    return InvalidInput(
        f"{url} is not a Postroom server (HTTP {status}, {media_type}); "
        "use the address that `postroom serve` prints"
    )


def read_json(content: bytes) -> Any:
    """The JSON of a response; None if it is not JSON."""
    try:
        return decode(content)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None


def filename_of(response: httpx2.Response) -> str:
    """The name of a download; it comes from a mail."""
    stated = response.headers.get("content-disposition", "")
    encoded = re.search(r"filename\*=UTF-8''([^;]+)", stated)
    plain = re.search(r'filename="([^"]*)"', stated)
    return unquote(encoded[1]) if encoded else plain[1] if plain else ""


def check_url(url: str) -> str:
    """The address of a server. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise invalid_url_error(url) from None
    if not is_good or parts.query or parts.fragment or "@" in parts.netloc:
        raise invalid_url_error(url)
    # The paths of all operations begin with /v1, so the address with it means the same server.
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def invalid_url_error(url: str) -> InvalidInput:
    """The error for an invalid address."""
    return InvalidInput(f"{url} is not the address of a server, such as http://mail:8700")


def headers_of(key: str | None) -> dict[str, str]:
    """The headers of every request. Raises InvalidInput."""
    if key == "":
        raise InvalidInput("key: it is empty")
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise InvalidInput("key: it has a space, a line break or another character that no key has")
    return {"Authorization": f"Bearer {key}"} if key else {}


def request_of(http: Any, url: str, call: Call, timeout_s: float) -> httpx2.Request:
    """The request of a call."""
    content, media_type = call.raw, "message/rfc822"
    if content is None and call.body is not None:
        content, media_type = encode(call.body), "application/json"
    headers = {} if content is None else {"Content-Type": media_type}
    wait_s = float(call.query.get("timeout_s", 60 if call.is_wait else 0))
    wait_s += float((call.body or {}).get("wait_s") or 0)
    timeout = httpx2.Timeout(timeout_s + wait_s, connect=CONNECT_S)
    found: httpx2.Request = http.build_request(
        call.method,
        url + call.target,
        content=content,
        headers={**headers, **call.headers},
        timeout=timeout,
    )
    return found


class Connection:
    """A connection with blocking methods."""

    def __init__(self, url: str, key: str | None, timeout_s: float, retries: int) -> None:
        self.url, self._timeout_s, self._retries = check_url(url), timeout_s, retries
        self._http = httpx2.Client(headers=headers_of(key), follow_redirects=False)

    def send(self, call: Call) -> httpx2.Response:
        """Send a call and read its response. Raises MailError."""
        steps = exchange(call, self.url, self._retries)
        reply: _Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(step, float):
                time.sleep(step)
                reply = None
                continue
            try:
                reply = self._http.send(request_of(self._http, self.url, step, self._timeout_s))
            except FAILURES as error:
                reply = error

    def stream(self, call: Call) -> Lines:
        """Send a call and leave its response open. Raises MailError."""
        request = request_of(self._http, self.url, call, STREAM_S)
        try:
            response = self._http.send(request, stream=True)
            if not response.is_success:
                response.read()
        except FAILURES as error:
            raise unreachable_error(self.url, error) from None
        if not response.is_success:
            raise error_of(self.url, response)
        return Lines(self.url, response)

    def close(self) -> None:
        self._http.close()


class Lines:
    """An open response, line by line."""

    def __init__(self, url: str, response: httpx2.Response) -> None:
        self._url, self._response = url, response

    def lines(self) -> Iterator[str]:
        """The lines. Raises Unavailable if they break off."""
        try:
            yield from self._response.iter_lines()
        except (*FAILURES, httpx2.StreamError) as error:
            raise unreachable_error(self._url, error) from None

    def close(self) -> None:
        self._response.close()


class AsyncConnection:
    """A connection with coroutines."""

    def __init__(self, url: str, key: str | None, timeout_s: float, retries: int) -> None:
        self.url, self._timeout_s, self._retries = check_url(url), timeout_s, retries
        self._http = httpx2.AsyncClient(headers=headers_of(key), follow_redirects=False)

    async def send(self, call: Call) -> httpx2.Response:
        """Send a call and read its response. Raises MailError."""
        steps = exchange(call, self.url, self._retries)
        reply: _Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(step, float):
                await anyio.sleep(step)
                reply = None
                continue
            request = request_of(self._http, self.url, step, self._timeout_s)
            try:
                reply = await self._http.send(request)
            except FAILURES as error:
                reply = error

    async def stream(self, call: Call) -> AsyncLines:
        """Send a call and leave its response open. Raises MailError."""
        request = request_of(self._http, self.url, call, STREAM_S)
        try:
            response = await self._http.send(request, stream=True)
            if not response.is_success:
                await response.aread()
        except FAILURES as error:
            raise unreachable_error(self.url, error) from None
        if not response.is_success:
            raise error_of(self.url, response)
        return AsyncLines(self.url, response)

    async def close(self) -> None:
        await self._http.aclose()


class AsyncLines:
    """An open response, line by line."""

    def __init__(self, url: str, response: httpx2.Response) -> None:
        self._url, self.response = url, response

    async def lines(self) -> AsyncIterator[str]:
        """The lines. Raises Unavailable if they break off."""
        try:
            async for line in self.response.aiter_lines():
                yield line
        except (*FAILURES, httpx2.StreamError) as error:
            raise unreachable_error(self._url, error) from None

    async def close(self) -> None:
        await self.response.aclose()
