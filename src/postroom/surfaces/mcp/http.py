"""Streamable HTTP without sessions: every request is authenticated on its own.

The SDK handles every call. For the most frequent request (one tool call in, one JSON response out)
`answer` skips the streams and tasks that the SDK sets up for each request of the older revisions,
which cost as much as the call itself. It is the only code that calls the drivers of the SDK
(`mcp.server.runner.serve_one`, `mcp.server.connection.Connection.from_envelope`) without one of its
transports; `tests/test_library_internals.py` fails if a version lacks them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_one
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from msgspec.json import encode
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from postroom.admission.rate_limits import ConcurrencyLimit
from postroom.admission.spool import RequestBodies, keyed_client
from postroom.errors import StorageFull
from postroom.model.key import Caller
from postroom.surfaces.connections import cancel_on_disconnect
from postroom.surfaces.mcp.call_tool import Ends, refusal
from postroom.surfaces.mcp.stdio import TooDeep, Unreadable, check_depth, read_frame, write_frame
from postroom.surfaces.mcp.tool import Tool


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call of an older revision, with the transport data that the SDK needs."""

    call: types.JSONRPCRequest
    revision: str
    message_metadata: ServerMessageMetadata
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)
    transport: TransportContext = TransportContext(kind="streamable-http", can_send_request=False)
    can_send_request: bool = False

    @property
    def request_id(self) -> types.RequestId:
        return self.call.id

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Ignored: the response is a single JSON document."""

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Ignored: requests with a progress token are handled by the SDK."""


def plain_call(request: Request, body: bytes) -> Exchange | None:
    """Return the tool call of a plain request; None if the SDK has to handle the request.

    Raises:
        TooDeep: the JSON is nested too deeply.
    """
    revision = request.headers.get("mcp-protocol-version")
    if revision not in HANDSHAKE_PROTOCOL_VERSIONS or b'"tools/call"' not in body:
        return None
    if request.headers.get("content-type") != "application/json":
        return None
    if not check_accept_headers(request)[0]:
        return None
    try:
        message = read_frame(body)
    except TooDeep:
        raise
    except Unreadable as error:
        if error.reply.error.code == types.INVALID_PARAMS:
            raise
        return None
    if not isinstance(message, types.JSONRPCRequest) or message.method != "tools/call":
        return None
    return Exchange(message, revision, ServerMessageMetadata(request_context=request))


async def answer(server: Server[Any], exchange: Exchange) -> Response:
    """Run the call, and write its result."""
    connection = Connection.from_envelope(exchange.revision, None, None)
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": exchange.call.id}
    try:
        reply["result"] = await serve_one(
            server,
            exchange,
            exchange.call.method,
            exchange.call.params,
            connection=connection,
            lifespan_state={},
        )
    except MCPError as error:
        reply["error"] = error.error.model_dump(mode="json", exclude_none=True)
    except ValidationError:
        reply["error"] = {"code": types.INVALID_PARAMS, "message": "Invalid request parameters"}
    return Response(encode(reply), media_type="application/json")


_CALLER = "postroom.caller"


class AccessControl(Protocol):
    """Access control, provided by the HTTP server for all of its surfaces."""

    def check_origin(self, headers: Headers, scope: Scope) -> None:
        """Refuse requests that a page of another site could have caused. Raises Forbidden."""

    async def mcp_caller(self, headers: Headers, scope: Scope) -> Caller:
        """Authenticate the caller by a key or an access token. Raises Unauthenticated."""


def caller_of(request: ServerRequestContext[Any, Any]) -> Caller:
    """The caller of the HTTP request of a call."""
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
        with self._concurrency_limit.slot():
            caller = await self._access.mcp_caller(headers, scope)
        if scope["method"] != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        ends = Ends()
        try:
            chunks = ends.of(aiter(Request(scope, receive).stream()))
            sender = keyed_client(caller.key_id)
            stated = headers.get("content-length", "")
            async with self._request_bodies.body(chunks, sender, self._most_bytes, stated) as body:
                waits = self._is_waiting(body)
                with nullcontext() if waits else self._concurrency_limit.slot():
                    await self._serve({**scope, _CALLER: caller}, body, receive, send)
        except StorageFull as error:
            await refusal(error, ends, self._tools)(scope, receive, send)
        except Unreadable as error:
            status = 400 if error.reply.error.code == types.INVALID_REQUEST else 200
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
            _check_message(body)
            await self._plain.handle_request(scope, _replay(body, receive), send)


def _check_message(body: bytes) -> None:
    """Refuse what is not a JSON-RPC message, in fewer words than the SDK. Raises Unreadable."""
    try:
        read_frame(body)
    except Unreadable as error:
        if error.reply.error.code == types.INVALID_REQUEST:
            raise


def _manager(
    server: Server[Any], most_bytes: int, *, json_response: bool
) -> StreamableHTTPSessionManager:
    return StreamableHTTPSessionManager(
        server, json_response=json_response, stateless=True, max_request_body_size=most_bytes
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a body that was already read, and then further messages."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
