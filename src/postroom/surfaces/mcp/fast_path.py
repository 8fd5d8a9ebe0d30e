"""A fast path for the most frequent request: one tool call in, one JSON response out.

The SDK handles the call, as on the other paths. This skips the streams and tasks that it sets up
for each request of the older revisions, which cost as much as the call itself. It is the only
module that calls the drivers of the SDK (`mcp.server.runner.serve_one`,
`mcp.server.connection.Connection.from_envelope`) without a transport of the SDK;
`tests/test_library_internals.py` fails if a version lacks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_one
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from msgspec.json import encode
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from postroom.surfaces.mcp.stdio import TooDeep, Unreadable, read_frame


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call of an older revision, and what the SDK wants to know about the way it came."""

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
        """Nobody listens before the answer."""

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Nobody asked for it; a request that asks takes the long way."""


def plain_call(request: Request, body: bytes) -> Exchange | None:
    """The call that a request is, if there is nothing else to it; the SDK sees to all others.

    Raises:
        TooDeep: nobody shall look at it.
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
    """Run the call, and write what comes of it."""
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
