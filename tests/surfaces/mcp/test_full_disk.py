"""A call for which there is no disk space is answered as a tool call."""

from __future__ import annotations

import json

import httpx2
import pytest

from postroom.admission.spool import MEMORY_BYTES
from postroom.errors import StorageFull
from postroom.surfaces.mcp.call_tool import Ends, refusal
from postroom.surfaces.mcp.toolsets import choose_tools
from tests.mails import new_inbox
from tests.surfaces.mcp.test_http import JSON, NEWEST, REVISIONS, connected, headers, serving

TOOLS = {tool.name: tool for tool in choose_tools(useful=["imap"])}
LONG = "x" * 4 * MEMORY_BYTES


@pytest.fixture
async def url(app, tmp_path):
    """A server that cannot spool request bodies."""
    app.request_bodies.folder = tmp_path / "not there"
    async with serving(app) as url:
        yield url


@pytest.fixture
async def key(app):
    return await app.owner_key()


@pytest.fixture
async def post(url, key):
    """Posts bytes to the server."""
    sent = {"Authorization": f"Bearer {key}", "Accept": f"{JSON}, text/event-stream"}
    sent |= {"Content-Type": JSON, **headers("tools/call", REVISIONS[0])}
    async with httpx2.AsyncClient(headers=sent, timeout=60) as client:
        yield lambda content: client.post(url, content=content)


@pytest.mark.parametrize("revision", [REVISIONS[0], NEWEST])
async def test_the_official_client_gets_a_tool_error(app, ctx, url, key, tmp_path, revision):
    inbox = await new_inbox(ctx)
    outgoing_mail = {
        "inbox_id": inbox.id,
        "recipient": "x@example.com",
        "subject": "Hi",
        "body": LONG,
    }
    async with connected(url, key, revision) as client:
        full = await client.call_tool("send_email", outgoing_mail)
        app.request_bodies.folder = tmp_path
        again = await client.call_tool("send_email", outgoing_mail)

    error = full.structured_content["error"]
    assert full.is_error
    assert ("INTERNAL_ERROR", "storage_full") == (error["code"], error["details"]["kind"])
    assert error == json.loads(full.content[0].text)["error"]
    assert (False, "captured") == (again.is_error, again.structured_content["status"])


PARAMS = {"name": "send_email", "arguments": {"body": LONG, "id": 8, "method": "tools/list"}}
HEAD = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}


@pytest.mark.parametrize("spaces", [(",", ":"), (" , ", " : ")], ids=["tight", "spaced"])
@pytest.mark.parametrize(
    "call",
    [
        {**HEAD, "params": PARAMS},
        {"method": "tools/call", "params": PARAMS, "jsonrpc": "2.0", "id": 7},
        {"params": PARAMS, **HEAD},
        {"id": 7, "params": PARAMS, "method": "tools/call", "jsonrpc": "2.0"},
    ],
    ids=" ".join,
)
async def test_the_id_of_the_call_is_found_at_either_end(post, call, spaces):
    response = await post(json.dumps(call, separators=spaces).encode())

    answer = response.json()
    assert (200, 7) == (response.status_code, answer["id"])
    assert answer["result"]["isError"]


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"method": "tools/call", "params": {**PARAMS, "arguments": LONG}}),
        json.dumps({"params": PARAMS, "id": 7, "method": "tools/call", "more": {}}),
        json.dumps({"params": PARAMS, "method": "tools/call", "id": 7.5}),
        json.dumps({"params": PARAMS, "method": "tools/call", "id": None}),
        f'{{"method":"tools/call","params":"{LONG}\\",\\"id\\":7}}"}}',
        f'{{"id":007,"method":"tools/call","params":"{LONG}"}}',
        f'{{"id":"\\x","method":"tools/call","params":"{LONG}"}}',
        LONG,
        f'"id":7}}{LONG}',
    ],
)
async def test_a_call_without_a_known_id_is_an_http_error(post, body):
    response = await post(body.encode())

    answer = response.json()
    assert (507, None) == (response.status_code, answer["id"])
    assert "storage_full" == answer["error"]["data"]["details"]["kind"]


async def test_a_request_that_is_no_tool_call_is_a_protocol_error(post):
    response = await post(json.dumps({**HEAD, "method": "tools/list", "params": PARAMS}).encode())

    assert (507, 7) == (response.status_code, response.json()["id"])


def test_each_tool_uses_the_error_of_its_contract():
    ends = Ends(b'{"id":7,"method":"tools/call","params":{"name":"imap_search_messages"')

    answer = json.loads(refusal(StorageFull("no space"), ends, TOOLS).body)

    assert {"error", "meta"} == answer["result"]["structuredContent"].keys()
