"""An invalid call is answered with what is missing, on both transports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from postroom.surfaces.mcp.server import http_app
from postroom.surfaces.rest.server import AccessControl, build
from tests.surfaces.mcp.stdio_client import started
from tests.surfaces.rest.conftest import rest_client

WRONG: list[tuple[Any, str]] = [
    (None, "params: give an object"),
    ([], "params: give an object"),
    ({}, "params.name: give the name of a tool"),
    ({"name": 7}, "params.name: give the name of a tool"),
    ({"name": "list_inboxes", "arguments": [1]}, "params.arguments: give an object"),
    ({"name": "list_inboxes", "arguments": "x"}, "params.arguments: give an object"),
]


@pytest.mark.parametrize(("params", "told"), WRONG)
def test_invalid_calls_on_stdio_are_explained(tmp_path, params, told):
    with started(tmp_path) as stdio:
        stdio.hello()
        call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
        stdio.write(json.dumps(call).encode())

        answer = stdio.read()

    assert (7, -32602) == (answer["id"], answer["error"]["code"])
    assert answer["error"]["message"].startswith(told)


@pytest.mark.parametrize(("params", "told"), WRONG)
async def test_invalid_calls_over_http_are_explained(app, params, told):
    endpoint = http_app(app, AccessControl.of(app, no_auth=False))
    asgi = build(app, mounts={"/mcp": endpoint}, lifespans=[endpoint.lifespan])
    headers = {
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": "2025-11-25",
    }
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    async with rest_client(app, await app.owner_key(), asgi=asgi, **headers) as rest:
        answer = (await rest.send("POST", "/mcp", json=call)).json()

    assert (7, -32602) == (answer["id"], answer["error"]["code"])
    assert answer["error"]["message"].startswith(told)


def test_a_line_that_is_not_json_is_explained(tmp_path):
    with started(tmp_path) as stdio:
        stdio.hello()
        stdio.write(b"hello there")

        message = stdio.read()["error"]["message"]

    assert "this line is not JSON (at character 1); send one JSON-RPC object per line" == message
