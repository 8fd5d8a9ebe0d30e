"""Streamable HTTP without sessions: every request is authenticated on its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Protocol

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from postroom.admission.rate_limits import ConcurrencyLimit
from postroom.admission.spool import RequestBodies, known
from postroom.errors import StorageFull
from postroom.model.key import Caller
from postroom.surfaces.connections import cancel_on_disconnect
from postroom.surfaces.mcp.call_tool import Ends, refusal
from postroom.surfaces.mcp.fast_path import answer, plain_call
from postroom.surfaces.mcp.stdio import TooDeep, Unreadable, check_depth, write_frame
from postroom.surfaces.mcp.tool import Tool

_CALLER = "postroom.caller"


class AccessControl(Protocol):
    """Access control, provided by the HTTP server for all of its surfaces."""

    def check_origin(self, headers: Headers, scope: Scope) -> None:
        """Refuse requests that a page of another site could have caused. Raises Forbidden."""

    async def mcp_caller(self, headers: Headers, scope: Scope) -> Caller:
        """Authenticate the caller by a key or an access token. Raises Unauthenticated."""


def caller_of(request: ServerRequestContext[Any, Any]) -> Caller:
    """Who sent the HTTP request that a call came with."""
    assert request.request is not None
    caller = request.request.scope[_CALLER]
    assert isinstance(caller, Caller)
    return caller


class McpEndpoint:
    """An ASGI application for one path of an HTTP server, which explains the MailErrors it raises.

    An answer is plain JSON, which costs half of a stream, unless the client asks for progress.
    Calls of *tools* that wait for mail do not count against the concurrency limit.
    """

    def __init__(
        self,
        server: Server[Any],
        access: AccessControl,
        most_bytes: int,
        concurrency_limit: ConcurrencyLimit,
        request_bodies: RequestBodies,
        tools: Iterable[Tool] = (),
    ) -> None:
        self._server, self._access, self._most_bytes = server, access, most_bytes
        self._concurrency_limit, self._request_bodies = concurrency_limit, request_bodies
        self._tools = {tool.name: tool for tool in tools}
        waiting = [name for name, tool in self._tools.items() if tool.operation.waits]
        self._waiting = tuple(f'"{name}"'.encode() for name in waiting)
        self._plain = _manager(server, most_bytes, json_response=True)
        self._streaming = _manager(server, most_bytes, json_response=False)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Serve while this is open; a server that mounts us enters it with its own."""
        async with self._plain.run(), self._streaming.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._access.check_origin(headers, scope)
        with self._concurrency_limit.place():
            caller = await self._access.mcp_caller(headers, scope)
        if scope["method"] != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        ends = Ends()
        try:
            chunks, sender = ends.of(_chunks(receive)), known(caller.key_id)
            stated = headers.get("content-length", "")
            async with self._request_bodies.body(chunks, sender, self._most_bytes, stated) as body:
                waits = self._is_waiting(body)
                with nullcontext() if waits else self._concurrency_limit.place():
                    await self._serve({**scope, _CALLER: caller}, body, receive, send)
        except StorageFull as error:
            await refusal(error, ends, self._tools)(scope, receive, send)
        except Unreadable as error:
            status = 400 if isinstance(error, TooDeep) else 200
            reply = Response(write_frame(error.reply), status, media_type="application/json")
            await reply(scope, receive, send)

    def _is_waiting(self, body: bytes) -> bool:
        return any(name in body for name in self._waiting)

    async def _serve(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Answer a call, and cancel it if the client disconnects."""
        if b'"progressToken"' in body:
            check_depth(body)
            await self._streaming.handle_request(scope, _replay(body, receive), send)
            return
        asked = self._answer(scope, body, receive, send)
        await (cancel_on_disconnect(receive, asked) if self._is_waiting(body) else asked)

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        if exchange := plain_call(Request(scope), body):
            response = await answer(self._server, exchange)
            await response(scope, receive, send)
        else:
            check_depth(body)
            await self._plain.handle_request(scope, _replay(body, receive), send)


def _manager(
    server: Server[Any], most_bytes: int, *, json_response: bool
) -> StreamableHTTPSessionManager:
    return StreamableHTTPSessionManager(
        server, json_response=json_response, stateless=True, max_request_body_size=most_bytes
    )


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    """What comes, piece by piece. Raises ClientDisconnect."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        more = message.get("more_body", False)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hand out a body that was read already, then whatever comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
