"""Servers for the conformance suite, on loopback and without keys, which the suite cannot send."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import mcp_types as types
import pytest
import uvicorn
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from postroom.app import open_app
from postroom.config import Settings, read_settings
from postroom.surfaces.mcp.http import McpEndpoint, caller_of
from postroom.surfaces.mcp.server import make_server
from postroom.surfaces.mcp.toolsets import choose_tools
from postroom.surfaces.rest.access import AccessControl
from postroom.surfaces.rest.server import build
from tests.conformance.tools import add_test_tools

STOP_S = 10


@pytest.fixture
def bare_url() -> Iterator[str]:
    """A server of the SDK with only the suite's tools: what fails here is not Postroom's fault.

    Like Postroom's, it has no sessions.
    """

    async def list_tools(ctx, params):
        return types.ListToolsResult(tools=[])

    async def call_tool(ctx, params):
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name}")

    server = Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    add_test_tools(server)
    with serving(server.streamable_http_app(stateless_http=True)) as url:
        yield f"{url}/mcp"


@pytest.fixture
def postroom_url(tmp_path: Path) -> Iterator[str]:
    """Postroom itself, with the suite's tools in addition to its own."""
    with serving(postroom(read_settings({"POSTROOM_DATA_DIR": str(tmp_path)}).settings)) as url:
        yield f"{url}/mcp"


def postroom(settings: Settings) -> ASGIApp:
    """The whole server, opened by the server loop."""
    opened: list[ASGIApp] = []

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        async with open_app(settings) as app:
            server = make_server(app, choose_tools(), caller_of)
            add_test_tools(server)
            # Our tools take no arguments in headers, so the SDK need not parse them; the suite's
            # do.
            server.get_tool_input_schema = None
            access = AccessControl.of(app, no_auth=True)
            endpoint = McpEndpoint(
                server,
                access,
                settings.limits.request_bytes,
                app.concurrency_limit,
                app.request_bodies,
            )
            opened.append(build(app, mounts={"/mcp": endpoint}, no_auth=True))
            async with endpoint.lifespan():
                yield

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await opened[0](scope, receive, send)

    return Router(default=serve, lifespan=lifespan)


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """Serve an application in a thread; clients wait in the socket's backlog until it is up."""
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(STOP_S)
