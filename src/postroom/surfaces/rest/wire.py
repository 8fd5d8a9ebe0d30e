"""HTTP as it comes over the wire: where uvicorn would answer in its own words, or wait for ever.

    we wait for                                     how long
    the head of a first request                     30 s from connecting
    the head of another one                         75 s, and 30 s from its first byte
    a client to read what we answer                 5 minutes

A body on its way has limits of its own (`operations/arrivals.py`), and whoever is being answered
has none: a stream of events, or a call that waits for mail. When all places are taken, whoever has
let us wait for longest makes way for the next.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from postroom.errors import Malformed, TooSlow, Unavailable
from postroom.surfaces.rest.problems import as_problem
from postroom.surfaces.rest.surface import new_request_id

log = logging.getLogger(__name__)

MOST_HEAD_BYTES = 128 * 1024
"""The longest request line and headers: 50 labels of 128 characters, percent-encoded, fit."""

KEEP_ALIVE_S = 75
"""How long a connection may be idle: longer than the 60 s of proxies, so that they close first."""

HEAD_S = 30.0
UNREAD_S = 300.0
_TELL_EVERY_S = 60.0

_NOT_HTTP = Malformed("this is not a request in HTTP/1.1, or its head is too long")
_FULL = Unavailable("too many are connected; try again", retry_after=1)


class Crowd(ServerState):
    """Who is connected to a server, and whom of them we wait for."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.waited_for: dict[Protocol, None] = {}
        """Whoever has let us wait for longest comes first."""
        self._told_at = float("-inf")

    def make_way(self, now: float) -> None:
        """End a connection if there are too many: never one that is being answered."""
        if len(self.connections) <= self.most:
            return
        if waited_for := next(iter(self.waited_for), None):
            waited_for.give_way()
        if now >= self._told_at + _TELL_EVERY_S:
            self._told_at = now
            log.warning("connections.full", extra={"most": self.most})


class Protocol(H11Protocol):
    """Waits for nobody for ever, and tells a client what is wrong as a problem."""

    server_state: Crowd
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)
        self._look()
        self.server_state.make_way(self.loop.time())

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_being_answered:
            self._forget_head()
        elif self._head_timer is None:
            # What comes now is a head, or the rest of a body that was refused before it was whole.
            self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._leave()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_timer = self.loop.call_later(UNREAD_S, self.transport.abort)
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_unread()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget_head()
        self._forget_unread()
        self.server_state.waited_for.pop(self, None)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._leave()

    def send_400_response(self, msg: str) -> None:
        if not getattr(self.cycle, "response_started", False):
            self.transport.write(_words(_NOT_HTTP))
        self._leave()

    def give_way(self) -> None:
        """Go at once, for others come."""
        self.server_state.waited_for.pop(self, None)
        if self._has_begun:
            self.transport.write(_words(_FULL))
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    @property
    def _is_being_answered(self) -> bool:
        return not getattr(self.cycle, "response_complete", True)

    @property
    def _has_begun(self) -> bool:
        """Whether a head has begun to come; who says nothing is told nothing (RFC 9112 §9.5)."""
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def _look(self) -> None:
        """See whether it is our turn now, or theirs."""
        if self._is_being_answered and not self.flow.write_paused:
            self.server_state.waited_for.pop(self, None)
        elif not self.transport.is_closing():
            self.server_state.waited_for.setdefault(self)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _forget_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _too_slow(self) -> None:
        if self._has_begun and not self.transport.is_closing():
            late = f"the head of the request did not come in time: send it within {HEAD_S:g} s"
            self.transport.write(_words(TooSlow(late)))
        self._leave()

    def _leave(self) -> None:
        """Close, also if our last words are not read."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(UNREAD_S, self.transport.abort)


def _words(error: Malformed | TooSlow | Unavailable) -> bytes:
    """A whole answer, for a request of which we know nothing."""
    request_id = new_request_id()
    response = as_problem(error, {"path": "/", "request_id": request_id})
    response.headers["Connection"] = "close"
    response.headers["X-Request-Id"] = request_id
    status = HTTPStatus(response.status_code)
    head = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
    head += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*head, b"", bytes(response.body)])
