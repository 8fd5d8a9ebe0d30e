"""A client of the REST surface: from an operation to a request, from a response to its answer."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import httpx2
from msgspec import DecodeError
from msgspec.json import decode, encode

from postroom.calls.context import parse_request
from postroom.calls.operation import Operation
from postroom.errors import InvalidInput, MailError, RateLimited, Unauthenticated, Unavailable
from postroom.model.event import EventStream
from postroom.model.message import Download, FailedAction
from postroom.surfaces.rest.responses import as_error
from postroom.surfaces.rest.routes import ROUTES
from postroom.surfaces.rest.routing import NOTHING_HERE, Route

Body = dict[str, Any]
Events = AsyncIterator[Body | None]

_CONNECT_S, _ANSWER_S = 10.0, 120.0
_FAILURES = ("not_found", "conflict", "provider_error", "provider_auth", "provider_timeout")
"""What can be wrong with the one message of an action."""

_ENDPOINT = re.compile(r"\b(GET|POST|PATCH|DELETE) (/v1/[\w/{}@.%-]*\w\b}?)")


class Client:
    """Calls the operations of a server as a program with a key does."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self._url, self._http = url.rstrip("/"), http

    async def call(
        self, operation: Operation[Any, Any], arguments: Mapping[str, Any]
    ) -> Body | Download | Events:
        """Call an operation.

        Raises:
            MailError: as the operation does, or the server cannot be reached.
        """
        parse_request(operation.request, arguments)  # tells the same problems in the same words
        route = _route_of(operation)
        response = await self._send(route, arguments)
        if response.is_success and operation.result is EventStream:
            return _events(response)
        if response.is_success and operation.result is Download:
            return _download(response)
        body = await self._read(response)
        if response.is_success:
            return body
        error = self._error_of(response, body)
        if route.single and error.code in _FAILURES:
            failed = {"message_id": arguments["message_id"], "code": error.code}
            return {
                **({"untrusted": True} if error.is_untrusted else {}),
                "status": "failed",
                "succeeded": [],
                "failed": [{**failed, "message": str(error)}],
            }
        raise error

    async def _send(self, route: Route, arguments: Mapping[str, Any]) -> httpx2.Response:
        try:
            request = self._request(route, arguments)
            return await self._http.send(request, stream=True)
        except httpx2.TimeoutException:
            raise Unavailable(f"{self._url}: no answer in time; try again", retry_after=5) from None
        except httpx2.UnsupportedProtocol:
            raise _not_a_url(self._url) from None
        except (httpx2.HTTPError, ssl.SSLError) as error:
            said = str(error) or type(error).__name__
            raise Unavailable(
                f"{self._url} cannot be reached: {said}; is the server running there?",
                retry_after=5,
            ) from None

    def _request(self, route: Route, arguments: Mapping[str, Any]) -> httpx2.Request:
        given = dict(arguments)
        if route.when and route.when not in given:
            given[route.when] = route.operation.request.model_fields[route.when].default
        path = re.sub(r"{(\w+)}", lambda found: quote(str(given[found[1]]), safe=""), route.path)
        query = [
            (name, str(one).lower() if isinstance(one, bool) else str(one))
            for name in route.at("query")
            if name in given
            for one in (given[name] if isinstance(given[name], list) else [given[name]])
        ]
        content, media_type = None, "application/json"
        if route.raw:
            content, media_type = given[route.raw], "message/rfc822"
        elif route.has_json_body:
            content = encode({name: given[name] for name in route.at("body") if name in given})
        headers = {"Content-Type": media_type} if content is not None else {}
        wait_s = float(given.get("timeout_s") or 60)
        return self._http.build_request(
            route.method,
            f"{self._url}{path}?{urlencode(query)}" if query else self._url + path,
            content=content,
            headers=headers,
            timeout=httpx2.Timeout(_ANSWER_S + wait_s, connect=_CONNECT_S),
        )

    async def _read(self, response: httpx2.Response) -> Body:
        try:
            content = await response.aread()
        except httpx2.HTTPError:
            raise Unavailable(
                f"{self._url}: the answer broke off; try again", retry_after=1
            ) from None
        if response.status_code == 204:
            return {}
        try:
            body = decode(content)
        except (DecodeError, UnicodeDecodeError):
            body = None
        is_ours = isinstance(body, dict) and (response.is_success or "code" in body)
        if not is_ours:
            media_type = response.headers.get("content-type", "no content type").partition(";")[0]
            raise InvalidInput(
                f"{self._url} is no Postroom server (HTTP {response.status_code}, {media_type}); "
                "give the address that `postroom serve` shows"
            )
        return dict(body)

    def _error_of(self, response: httpx2.Response, body: Body) -> MailError:
        code, detail = str(body["code"]), str(body["detail"])
        if code == "rate_limited":
            return RateLimited(detail, retry_after=int(body.get("retry_after", 1)))
        if code == "unavailable":
            return Unavailable(detail, retry_after=int(body.get("retry_after", 1)))
        if code == "unauthenticated":
            sent = "authorization" in response.request.headers
            problem = "does not accept this key" if sent else "needs a key"
            return Unauthenticated(
                f"{self._url} {problem}; give one with --key-file FILE or POSTROOM_KEY, as "
                "`postroom key create` shows it"
            )
        if detail.startswith(NOTHING_HERE):
            return InvalidInput(
                f"{self._url} does not know {response.request.url.path}; check --url, or use the "
                "version of Postroom that the server has"
            )
        error = as_error(FailedAction("", code, detail))
        error.is_untrusted = error.is_untrusted or "untrusted" in body
        return error


def operations_named(text: str) -> str:
    """A message with operations in place of endpoints, such as `GET /v1/labels`."""
    return _ENDPOINT.sub(_operation_of, text)


def _operation_of(found: re.Match[str]) -> str:
    for route in ROUTES:
        shape = re.sub(r"{\w+}", "[^/]+", route.path)
        if route.method == found[1] and not route.when and re.fullmatch(shape, found[2]):
            return route.operation.name
    return found[0]


def _route_of(operation: Operation[Any, Any]) -> Route:
    return next(route for route in ROUTES if route.operation is operation)


def _download(response: httpx2.Response) -> Download:
    stated = response.headers.get("content-disposition", "")
    encoded = re.search(r"filename\*=UTF-8''([^;]+)", stated)
    plain = re.search(r'filename="([^"]*)"', stated)
    return Download(
        chunks=response.aiter_bytes(),
        size=int(response.headers.get("content-length", 0)),
        content_type=response.headers.get("content-type", "application/octet-stream"),
        filename=unquote(encoded[1]) if encoded else plain[1] if plain else "",
    )


async def _events(response: httpx2.Response) -> Events:
    """The events of a stream; a comment keeps it open."""
    try:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield decode(line[6:])
            elif line.startswith(":"):
                yield None
    except httpx2.HTTPError as error:
        said = str(error) or "it was closed"
        raise Unavailable(f"the stream of events broke off: {said}", retry_after=1) from None
    raise Unavailable("the server ended the stream of events; start again", retry_after=1)


def check_url(url: str) -> str:
    """The address of a server. Raises InvalidInput."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise _not_a_url(url) from None
    if not is_good or parts.query or parts.fragment or "@" in parts.netloc:
        raise _not_a_url(url)
    return url


def _not_a_url(url: str) -> InvalidInput:
    return InvalidInput(f"--url: {url} is not the address of a server, such as http://mail:8700")


@asynccontextmanager
async def connected(url: str, key: str | None) -> AsyncIterator[Client]:
    """A client of a server, for as long as the block lasts."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers, follow_redirects=False) as http:
        yield Client(check_url(url), http)
