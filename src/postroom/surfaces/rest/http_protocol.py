"""HTTP/1.1 on a connection: limits on time and size, and errors as problems (RFC 9457).

    we wait for                                     how long
    the head of a first request                     30 s from connecting
    the head of another request                     75 s, and 30 s from its first byte
    a client to read the response                   5 minutes

A request body has separate limits (`admission/spool.py`). A request that is being
answered has none: it may be a stream of events, or a call that waits for mail. At the limit of
connections, the one that we have waited for longest is closed for the next.

This is the only module that uses parts of uvicorn that it does not document:

    H11Protocol             loop, transport, conn, cycle, flow, client, app_state, server_state,
                            on_response_complete, send_400_response, timeout_keep_alive_handler
    RequestResponseCycle    response_started, response_complete
    FlowControl             write_paused
    ServerState             connections
    Server                  server_state, startup, shutdown, capture_signals

uvicorn has no setting for these limits. `tests/test_library_internals.py` fails if a version lacks
one of these names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from postroom.errors import Malformed, TooSlow, Unavailable
from postroom.surfaces.connections import http_connections
from postroom.surfaces.rest.access import PEER
from postroom.surfaces.rest.http_messages import as_problem
from postroom.surfaces.rest.surface import new_request_id

log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 128 * 1024
"""The longest request line and headers: 50 labels of 128 characters, percent-encoded, fit."""

MAX_HEADERS = 256
"""More than any client and any chain of proxies sends."""

KEEP_ALIVE_S = 75
"""How long a connection may be idle: longer than the 60 s of proxies, so that they close first."""

BACKLOG = 2_048
"""How many connections may wait until we accept them."""

HEAD_S = 30.0
UNREAD_S = 300.0
_LOG_EVERY_S = 60.0

_NOT_HTTP = Malformed("this is not a valid HTTP request, or its head is too long")
_FULL = Unavailable("too many connections; try again", retry_after=1)


class ConnectionLimit(ServerState):
    """Connections of a server, and those that wait for a request."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.waited_for: dict[Protocol, None] = {}
        """Ordered by waiting time, longest first."""
        self._logged_at = float("-inf")

    def enforce(self, now: float) -> None:
        """Close the longest-waiting connection at the limit; never one that is being answered."""
        if len(self.connections) <= self.most:
            return
        if waited_for := next(iter(self.waited_for), None):
            waited_for.close_for_limit()
        if now >= self._logged_at + _LOG_EVERY_S:
            self._logged_at = now
            log.warning("connections.full", extra={"limit": self.most})


class _Strict(h11.Connection):
    """Refuses a request that says twice how long it is (RFC 9112 §6.1), or whose head is too long.

    A proxy may have used the other length; part of this body would then be taken for the next
    request. The second h11 refuses only if it comes in pieces.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            _check_head(event)
        return event


def _check_head(request: h11.Request) -> None:
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names and (
        b"content-length" in names or request.http_version < b"1.1"
    ):
        raise h11.RemoteProtocolError("conflicting Content-Length headers")
    size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
    if size > MAX_HEAD_BYTES or len(names) > MAX_HEADERS:
        raise h11.RemoteProtocolError("the request header is too long")


class Protocol(H11Protocol):
    """HTTP/1.1 with limits on time, and errors as problem documents."""

    server_state: ConnectionLimit
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.conn = _Strict(h11.SERVER, MAX_HEAD_BYTES)
        self.app_state = {**self.app_state, PEER: self.client[0] if self.client else ""}
        self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)
        self._update_waiting()
        self.server_state.enforce(self.loop.time())

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_being_answered:
            self._cancel_head_timer()
        elif self._head_timer is None:
            # The next bytes are a head, or the rest of a body that was refused.
            self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)
        self._update_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        self._update_waiting()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_timer = self.loop.call_later(UNREAD_S, self.transport.abort)
        self._update_waiting()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        self._update_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel_head_timer()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        self.server_state.waited_for.pop(self, None)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._close()

    def send_400_response(self, msg: str) -> None:
        if not (self._is_being_answered and self.cycle.response_started):
            self.transport.write(_error_response(_NOT_HTTP))
        self._close()

    def close_for_limit(self) -> None:
        """Close immediately, for another connection."""
        self.server_state.waited_for.pop(self, None)
        if self._has_begun:
            self.transport.write(_error_response(_FULL))
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    @property
    def _is_being_answered(self) -> bool:
        return not getattr(self.cycle, "response_complete", True)

    @property
    def _has_begun(self) -> bool:
        """Whether a head has begun; an idle connection gets no response (RFC 9112 §9.5)."""
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def _update_waiting(self) -> None:
        """Check whether it is our turn now, or the client's."""
        if self._is_being_answered and not self.flow.write_paused:
            self.server_state.waited_for.pop(self, None)
        elif not self.transport.is_closing():
            self.server_state.waited_for.setdefault(self)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        if self._has_begun and not self.transport.is_closing():
            late = f"the request head was not received in time: send it within {HEAD_S:g} s"
            self.transport.write(_error_response(TooSlow(late)))
        self._close()

    def _close(self) -> None:
        """Close the connection, even if the response has not been read."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(UNREAD_S, self.transport.abort)


class Server(uvicorn.Server):
    """Leaves signals to the caller: uvicorn would raise them before the store is closed."""

    def __init__(self, config: uvicorn.Config, stopping: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.server_state = ConnectionLimit(http_connections())
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio takes as many at once as it lets wait, and those are two things.
        for bound in sockets or []:
            bound.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._stopping is not None:
            self._stopping()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _error_response(error: Malformed | TooSlow | Unavailable) -> bytes:
    """A complete response to a request that could not be parsed."""
    request_id = new_request_id()
    response = as_problem(error, {"path": "/", "request_id": request_id})
    response.headers["Connection"] = "close"
    response.headers["X-Request-Id"] = request_id
    status = HTTPStatus(response.status_code)
    head = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
    head += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*head, b"", bytes(response.body)])
