"""Builds the REST application and serves it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import uvicorn
from starlette.routing import Router
from starlette.types import ASGIApp

from postroom.app import App
from postroom.errors import Conflict, InvalidInput
from postroom.surfaces.rest import http_protocol as http
from postroom.surfaces.rest.access import AccessControl
from postroom.surfaces.rest.failed_logins import Attempts
from postroom.surfaces.rest.metrics import Metrics
from postroom.surfaces.rest.pages import pages, pages_of_health
from postroom.surfaces.rest.routes import ROUTES
from postroom.surfaces.rest.surface import Surface, new_attempts

__all__ = [
    "AccessControl",
    "Attempts",
    "build",
    "build_health",
    "listen",
    "new_attempts",
    "serve_on",
]

GRACE_S = 1
"""How long running requests may take at shutdown."""

FORCE_STOP_S = 1.0
"""A second signal after this time ends running requests."""

ACCEPTED_AT_ONCE = 64
"""How many connections are accepted before the limit is checked again."""

Lifespan = Callable[[], AbstractAsyncContextManager[object]]
"""What a mounted application needs to be running while we are."""


def build(
    app: App,
    *,
    mounts: Mapping[str, ASGIApp] | None = None,
    lifespans: Sequence[Lifespan] = (),
    no_auth: bool = False,
    attempts: Attempts | None = None,
) -> ASGIApp:
    """The application: the table, its pages, and other applications under separate paths.

    A mounted application gets its requests as they came, with the whole path, once Host and Origin
    are checked; it authenticates callers itself. A server runs the lifespan of the whole only, so
    the lifespans of mounted applications are entered here. The processes of one server share their
    *attempts*.

    Raises:
        ConfigError: `no_auth` would open more than this machine.
    """
    metrics = Metrics(app.services.counts.counters)
    access = AccessControl.of(app, no_auth=no_auth)
    surface = Surface(
        app, access, ROUTES, pages(app, metrics, access), mounts or {}, metrics, attempts
    )

    @asynccontextmanager
    async def lifespan(_router: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for enter in lifespans:
                await stack.enter_async_context(enter())
            yield

    return Router(default=surface, lifespan=lifespan, redirect_slashes=False)


def build_health(app: App) -> ASGIApp:
    """An application with health and metrics only, for processes without a surface."""
    metrics = Metrics(app.services.counts.counters)
    access = AccessControl.of(app, no_auth=False)
    surface = Surface(app, access, (), pages_of_health(app, metrics, access), {}, metrics)
    return Router(default=surface, redirect_slashes=False)


async def serve_on(
    bound: socket.socket,
    asgi: ASGIApp,
    *,
    ready: Callable[[int], None] | None = None,
    stopping: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; *ready* is called with the port once it listens.

    *stopping* is called before running requests are awaited: some never end on their own.
    """
    with bound:
        config = uvicorn.Config(
            asgi,
            http=http.Protocol,
            ws="none",
            backlog=ACCEPTED_AT_ONCE,
            h11_max_incomplete_event_size=http.MAX_HEAD_BYTES,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=http.KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        server = http.Server(config, stopping)
        with _stopped_by_signals(server):
            if ready is not None:
                ready(bound.getsockname()[1])
            await server.serve([bound])


@contextlib.contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    signalled_at: float | None = None

    def stop() -> None:
        # A process of a group gets the signal from the sender, and again from the parent process.
        nonlocal signalled_at
        signalled_at = signalled_at or loop.time()
        server.force_exit = loop.time() > signalled_at + FORCE_STOP_S
        server.should_exit = True

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def listen(host: str, port: int) -> socket.socket:
    """Open the port.

    Raises:
        Conflict: another program has it.
        InvalidInput: the address is not one of this machine, or needs rights we lack.
    """
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # With the protocol named, asyncio switches Nagle's algorithm off. Left on, it would hold
        # back the body of every answer until the client has acknowledged the head: 40 ms.
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidInput(
            f"host: cannot listen on {host}: {error.strerror}; choose --host"
        ) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(http.BACKLOG)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"port {port} of {host} is in use; choose --port, or stop the other program, "
                "which `postroom doctor` shows"
            ) from None
        raise InvalidInput(
            f"host: cannot listen on {host}:{port}: {error.strerror}; choose --host or --port"
        ) from None
    bound.setblocking(False)
    return bound
