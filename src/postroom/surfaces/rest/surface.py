"""The REST surface: find the route of a request, call its operation, write the response."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postroom.admission.spool import BodyLimits, keyed_client, keyless_client
from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.errors import MailError, NotFound, RateLimited, Unauthenticated, Unavailable
from postroom.model.key import INBOUND_CALLER
from postroom.surfaces.connections import cancel_on_disconnect, http_connections
from postroom.surfaces.http import KINDS, Paths, operations_named, segments_of
from postroom.surfaces.rest import http_messages
from postroom.surfaces.rest.access import (
    ACTOR,
    ATTEMPTS,
    READABLE,
    AccessControl,
    client_of,
    is_preflight,
    preflight,
    presented_key,
)
from postroom.surfaces.rest.failed_logins import Attempts, TooManyKeys
from postroom.surfaces.rest.http_messages import POSTED_BY, as_problem, problem, respond
from postroom.surfaces.rest.metrics import Metrics
from postroom.surfaces.rest.routes import NOTHING_HERE, Route, names_of

log = logging.getLogger(__name__)
access_log = logging.getLogger("postroom.access")

Answer = Callable[[Request, dict[str, str]], Awaitable[Response]]
"""Answers a request, given the variable segments of its path."""

_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_DEFAULT_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_GONE = 499
"""What the metrics call a client that left before its answer."""
_PAUSE_S = 1.0
_INDEX = "/openapi.json"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource at one path: a handler for each method."""

    path: str
    answers: dict[str, Answer]

    @property
    def allowed(self) -> str:
        methods = {*self.answers, *(["HEAD"] if "GET" in self.answers else [])}
        return ", ".join(sorted(methods))


class Surface:
    """An ASGI application over a table of routes, plain pages and mounted applications."""

    def __init__(
        self,
        app: App,
        access: AccessControl,
        routes: Iterable[Route],
        pages: Mapping[str, Answer],
        mounts: Mapping[str, ASGIApp],
        metrics: Metrics,
        attempts: Attempts | None = None,
    ) -> None:
        self._attempts = attempts or new_attempts()
        self._app, self._access, self._metrics, self._mounts = app, access, metrics, mounts
        self._pages, self._open, self._most_open = frozenset(pages), 0, _most_open()
        self._resources: Paths[Resource] = Paths()
        routes = tuple(routes)
        self._names = names_of(routes)
        for path, answers in _by_path(routes).items():
            bound = {method: self._answer(rows) for method, rows in answers.items()}
            self._resources.put(path, Resource(path, bound))
        for path, page in pages.items():
            self._resources.put(path, Resource(path, {"GET": page}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        scope = self._access.with_client({**scope, ATTEMPTS: self._attempts})
        exchange = _Exchange(scope, send)
        self._open += 1
        try:
            await self._serve(exchange, receive)
        finally:
            self._open -= 1
            status, seconds = exchange.status or _GONE, exchange.seconds
            self._metrics.record(exchange.method, exchange.route, status, seconds)
            if access_log.isEnabledFor(logging.INFO):
                context = {**exchange.context, "status": status, "ms": round(seconds * 1000, 1)}
                peer, actor = client_of(scope), exchange.scope.get(ACTOR, "")
                access_log.info("http.request", extra={**context, "peer": peer, "actor": actor})

    async def _serve(self, exchange: _Exchange, receive: Receive) -> None:
        request = Request(exchange.scope, receive)
        response: ASGIApp
        try:
            self._access.check_origin(request.headers, exchange.scope)
            if self._access.admits_page(request.headers, exchange.scope):
                exchange.is_readable = True
                if is_preflight(request.method, request.headers):
                    await preflight(request.headers)(exchange.scope, receive, exchange.send)
                    return
            self._check_open(exchange)
            if mounted := self._mounted(exchange):
                await mounted(exchange.scope, receive, exchange.send)
                return
            response = await self._respond(request, exchange)
        except ClientDisconnect:
            return
        except Unauthenticated as error:
            if exchange.status:
                raise
            response = self._refuse(await self._slowed_down(error, request, exchange), exchange)
        except Exception as error:
            if exchange.status:
                raise
            response = self._refuse(error, exchange)
            if isinstance(error, NotFound) and self._is_browser(request):
                # This path is not in the table of pages either: the response says so as a page.
                response = self._mounts["/"]
            await self._pause(error)
        await response(exchange.scope, receive, exchange.send)

    def _is_browser(self, request: Request) -> bool:
        """Whether a person opened this path in a browser."""
        is_page = "text/html" in request.headers.get("accept", "") and "/" in self._mounts
        return is_page and not request.url.path.startswith("/v1/")

    async def _pause(self, error: Exception) -> None:
        """Delay the refusal, so that clients that retry immediately cause little load."""
        if isinstance(error, TooManyKeys):
            await self._attempts.pause()
        elif isinstance(error, RateLimited):
            await asyncio.sleep(min(error.retry_after, _PAUSE_S))

    async def _slowed_down(
        self, error: Unauthenticated, request: Request, exchange: _Exchange
    ) -> MailError:
        """Delay a failed login; returns the error to answer with."""
        key = presented_key(request.headers)
        if key or POSTED_BY in request.scope:
            try:
                # What is signed is another attempt each time.
                await self._attempts.refuse(client_of(exchange.scope), key or new_request_id())
            except RateLimited as limited:
                return limited
        return error

    def _check_open(self, exchange: _Exchange) -> None:
        """Keep some connections free; health pages are always served. Raises Unavailable."""
        if self._open > self._most_open and exchange.scope["path"] not in self._pages:
            raise Unavailable("the server is at capacity; retry later", retry_after=1)

    def _refuse(self, error: Exception, exchange: _Exchange) -> Response:
        """The problem document of an error; details of an internal error go to the log only."""
        cause = None if isinstance(error, MailError) else error
        if not isinstance(error, MailError):
            error = MailError("internal error; the log has the details under this request_id")
        self._metrics.refuse(error.code)
        response = as_problem(error, exchange.scope, see=operations_named(error, self._names))
        if KINDS[error.code].status >= 500:
            context = {**exchange.context, "code": error.code, "error": str(error)}
            log.error("request.failed", extra=context, exc_info=cause)
        return response

    def _mounted(self, exchange: _Exchange) -> ASGIApp | None:
        path: str = exchange.scope["path"]
        for prefix, mounted in self._mounts.items():
            if path == prefix or path.startswith(prefix + "/"):
                exchange.route = prefix
                return mounted
        return None

    async def _respond(self, request: Request, exchange: _Exchange) -> Response:
        resource, values = self._resources.find(segments_of(exchange.scope))
        if resource is None:
            hint = f"the paths are: {', '.join(sorted(self._pages))}"
            hint = f"GET {_INDEX} lists the paths" if _INDEX in self._pages else hint
            raise NotFound(f"{NOTHING_HERE}; {hint}")
        exchange.route = resource.path
        answer = resource.answers.get("GET" if request.method == "HEAD" else request.method)
        if answer is None:
            self._metrics.refuse("method_not_allowed")
            return problem(
                "method_not_allowed",
                f"{request.method} is not supported here; allowed are {resource.allowed}",
                exchange.scope,
                headers={"Allow": resource.allowed},
            )
        return await answer(request, values)

    def _answer(self, rows: Sequence[Route]) -> Answer:
        """The handler of one or several rows of the table."""

        waits = any(row.operation.waits for row in rows)

        def place() -> AbstractContextManager[None]:
            return nullcontext() if waits else self._app.concurrency_limit.slot()

        async def answer(request: Request, values: dict[str, str]) -> Response:
            with place():
                ctx = await self._context(request, rows)
                query = http_messages.read_query(request)
                route = http_messages.choose(rows, query)
                sender, most = self._expected(ctx, route, request, values)
            async with http_messages.whole_body(
                request, route, self._app.request_bodies, sender, most
            ) as body:
                with place():
                    arguments = http_messages.read_arguments(route, request, values, query, body)
                    asked = call(ctx, route.operation, arguments)
                    with http_messages.naming_headers(route, request):
                        result = await (
                            cancel_on_disconnect(request.receive, asked) if waits else asked
                        )
                    return await respond(route, result, is_head=request.method == "HEAD")

        return answer

    async def _context(self, request: Request, rows: Sequence[Route]) -> RequestContext:
        if any(row.posted for row in rows):
            return self._app.context(INBOUND_CALLER, "rest")
        caller = await self._access.caller(request.headers, request.scope)
        return self._app.context(caller, "rest")

    def _expected(
        self, ctx: RequestContext, route: Route, request: Request, values: dict[str, str]
    ) -> tuple[BodyLimits, int]:
        """The sender of the body, as far as it is known, and how long it may be."""
        if route.expect is None:
            return keyed_client(ctx.caller.key_id), self._app.settings.limits.request_bytes
        request.scope[POSTED_BY] = values["provider"]
        address = request.client.host if request.client else ""
        return keyless_client(address), route.expect(ctx, values["provider"], request.headers)


def new_attempts() -> Attempts:
    """A table of wrong keys, for one server and all its processes."""
    return Attempts(max_delayed=http_connections() // 4)


def _most_open() -> int:
    """How many requests may be open: fewer than connections, so that the others are refused."""
    most = http_connections()
    return most - most // 16


def _by_path(routes: Iterable[Route]) -> dict[str, dict[str, list[Route]]]:
    table: dict[str, dict[str, list[Route]]] = {}
    for route in routes:
        table.setdefault(route.path, {}).setdefault(route.method, []).append(route)
    return table


class _Exchange:
    """One request: what the metrics and the headers of its response need."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = {**scope, "request_id": _request_id(scope)}
        self.method: str = scope["method"] if scope["method"] in _METHODS else "OTHER"
        self.route = "none"
        self.status = 0
        self.is_readable = False
        """Whether a page of another origin may read the answer."""
        self._send = send
        self._started = time.perf_counter()

    @property
    def context(self) -> dict[str, str]:
        """The fields of a log line about the request: never its arguments."""
        return {"request_id": self.scope["request_id"], "route": f"{self.method} {self.route}"}

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started

    async def send(self, message: Message) -> None:
        """Pass a message on: with our headers, and to HEAD without a body."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": self._with_ours(message["headers"])}
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    def _with_ours(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        given = list(headers)
        names = {name for name, _ in given}
        request_id = (b"x-request-id", self.scope["request_id"].encode())
        defaults = [pair for pair in _DEFAULT_HEADERS if pair[0] not in names]
        readable = READABLE if self.is_readable else ()
        return [*given, request_id, *_ALWAYS, *defaults, *readable]


def _request_id(scope: Scope) -> str:
    """The caller's own id for the request if it is plain, else a new one."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    text: str = given.decode("latin-1")
    return text if _REQUEST_ID.fullmatch(text) else new_request_id()


def new_request_id() -> str:
    """An id for a request, for the log and for support questions."""
    return f"req_{secrets.token_hex(8)}"
