"""MCP over HTTP, mounted with REST and with the same keys."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import jsonschema
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from postroom.model.key import ALL_SCOPES
from postroom.operations.keys import CreateKey, DeleteKey, create_key, delete_key
from postroom.surfaces.mcp.server import http_app
from postroom.surfaces.rest.access import AccessControl
from postroom.surfaces.rest.server import build
from tests.mails import deliver, mail, new_inbox
from tests.surfaces.mcp.test_fuzz import NASTY, is_answer, mutants
from tests.surfaces.mcp.test_waiting import until_waiting

REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
NEWEST = REVISIONS[-1]
JSON = "application/json"
META = "io.modelcontextprotocol/"


@asynccontextmanager
async def serving(app) -> AsyncIterator[str]:
    """The whole server on a port of its own."""
    endpoint = http_app(app, AccessControl.of(app, no_auth=False))
    asgi = build(app, mounts={"/mcp": endpoint}, lifespans=[endpoint.lifespan])
    config = uvicorn.Config(asgi, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
            server.should_exit = True


@pytest.fixture
async def url(app):
    async with serving(app) as url:
        yield url


@pytest.fixture
async def owned(ctx):
    """A key with every scope."""
    return await create_key(ctx, CreateKey(name="test", scopes=list(ALL_SCOPES)))


@pytest.fixture
def key(owned):
    return owned.key


@pytest.fixture
async def http(url, key):
    headers = {"Authorization": f"Bearer {key}", "Accept": f"{JSON}, text/event-stream"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        yield client


def question(method: str, revision: str = NEWEST, **params: Any) -> dict[str, Any]:
    if revision == NEWEST:
        about = {"protocolVersion": revision, "clientCapabilities": {}}
        params["_meta"] = {META + name: value for name, value in about.items()}
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def headers(method: str, revision: str = NEWEST, name: str | None = None) -> dict[str, str]:
    routing = {"MCP-Protocol-Version": revision, "Mcp-Method": method}
    return {**routing, "Mcp-Name": name} if name else routing


async def ask(http, method: str, revision: str = NEWEST, **params: Any) -> httpx2.Response:
    named = headers(method, revision, params.get("name"))
    return await http.post("", json=question(method, revision, **params), headers=named)


@asynccontextmanager
async def connected(url: str, key: str, revision: str) -> AsyncIterator[Client]:
    """The official client with the newest revision, or with the handshake of an older one."""
    mode = revision if revision == NEWEST else "legacy"
    async with httpx2.AsyncClient(headers={"X-API-Key": key}, timeout=60) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


@pytest.mark.parametrize("revision", [NEWEST, "2025-11-25"])
async def test_the_official_client_works_over_http(url, key, ctx, revision):
    await new_inbox(ctx, "ana")

    async with connected(url, key, revision) as client:
        tools = await client.list_tools()
        found = await client.call_tool("list_inboxes", {})
        wrong = await client.call_tool("get_message", {"message_id": "msg_none"})

        assert revision == client.protocol_version
    assert "search_messages" in {tool.name for tool in tools.tools}
    assert 1 == found.structured_content["total"]
    assert "NOT_FOUND" == wrong.structured_content["error"]["code"]


@pytest.mark.parametrize("revision", REVISIONS[:2])
async def test_an_older_client_negotiates_its_revision(http, revision):
    hello = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    response = await ask(http, "initialize", revision, protocolVersion=revision, **hello)

    result = response.json()["result"]
    assert revision == result["protocolVersion"]
    assert "postroom" == result["serverInfo"]["name"]
    assert "untrusted" in result["instructions"]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_requests_are_stateless(http, ctx, revision):
    """No session is created: any process can answer any request."""
    await new_inbox(ctx, "ana")

    response = await ask(http, "tools/call", revision, name="list_inboxes", arguments={})

    assert 1 == response.json()["result"]["structuredContent"]["total"]
    assert "mcp-session-id" not in response.headers
    assert JSON == response.headers["content-type"].partition(";")[0]


@pytest.mark.parametrize("revision", REVISIONS)
async def test_structured_content_fits_the_output_schema(http, ctx, revision):
    inbox = await new_inbox(ctx)
    added = await deliver(ctx, inbox, mail("Plans", in_reply_to=None))
    tools = (await ask(http, "tools/list", revision)).json()["result"]["tools"]
    schemas = {tool["name"]: tool["outputSchema"] for tool in tools}
    calls = {
        "list_inboxes": {},
        "list_messages": {"inbox_id": inbox.id},
        "get_message": {"message_id": added.message_id},
        "get_thread": {"thread_id": "thr_none"},
    }

    for name, arguments in calls.items():
        response = await ask(http, "tools/call", revision, name=name, arguments=arguments)
        result = response.json()["result"]

        jsonschema.validate(result["structuredContent"], schemas[name])
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


async def test_the_list_of_tools_is_byte_for_byte_the_same(http):
    one = await ask(http, "tools/list")
    other = await ask(http, "tools/list")

    assert one.content == other.content


async def test_the_newest_revision_is_discovered(http):
    result = (await ask(http, "server/discover")).json()["result"]

    assert NEWEST in result["supportedVersions"]
    assert "tools" in result["capabilities"]
    assert "complete" == result["resultType"]
    assert "untrusted" in result["instructions"]


@pytest.mark.parametrize("given", [{}, {"Authorization": "Bearer pk_wrong"}, {"X-API-Key": "x"}])
async def test_a_request_without_a_valid_key_is_refused(url, given):
    async with httpx2.AsyncClient(timeout=60) as stranger:
        response = await stranger.post(url, json=question("tools/list"), headers=given)

    assert 401 == response.status_code
    assert response.headers["www-authenticate"].startswith("Bearer")


async def test_a_key_may_be_given_in_either_header(url, key):
    async with httpx2.AsyncClient(headers={"X-API-Key": key, "Accept": JSON}, timeout=60) as http:
        response = await http.post(
            url,
            json=question("tools/list", "2025-11-25"),
            headers=headers("tools/list", "2025-11-25"),
        )

    assert 200 == response.status_code


async def test_every_request_needs_a_key(http, ctx, owned):
    first = await ask(http, "tools/list")
    await delete_key(ctx, DeleteKey(key_id=owned.id))
    second = await ask(http, "tools/list")

    assert (200, 401) == (first.status_code, second.status_code)


async def test_a_call_has_the_rights_of_its_own_key(url, ctx):
    mine, theirs = await new_inbox(ctx, "mine"), await new_inbox(ctx, "theirs")
    keys = [
        (await create_key(ctx, CreateKey(name="k", scopes=["read"], inboxes=[inbox.id]))).key
        for inbox in (mine, theirs)
    ]

    seen = []
    for key in keys * 2:
        async with connected(url, key, NEWEST) as client:
            seen.append((await client.call_tool("list_inboxes", {})).structured_content["results"])

    assert [mine.id, theirs.id] * 2 == [row["id"] for rows in seen for row in rows]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example"]
)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_request_of_another_origin_is_refused(http, origin, revision):
    http.headers["Origin"] = origin

    assert 403 == (await ask(http, "tools/list", revision)).status_code


async def test_an_unknown_host_name_is_refused(http):
    http.headers["Host"] = "rebound.example:80"

    assert 403 == (await ask(http, "tools/list")).status_code


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"MCP-Protocol-Version": "2031-01-01"}, -32020),
        ({"Mcp-Method": "tools/call"}, -32020),
    ],
)
async def test_headers_that_contradict_the_body_are_refused(http, changed, code):
    given = headers("tools/list") | changed
    response = await http.post("", json=question("tools/list"), headers=given)

    assert (400, code) == (response.status_code, response.json()["error"]["code"])


async def test_an_unknown_revision_is_refused_with_the_supported_ones(http):
    body = question("tools/list")
    body["params"]["_meta"][META + "protocolVersion"] = "2031-01-01"
    response = await http.post("", json=body, headers=headers("tools/list", "2031-01-01"))

    error = response.json()["error"]
    assert (400, -32022) == (response.status_code, error["code"])
    assert NEWEST in error["data"]["supported"]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_only_post_is_supported(http, method):
    response = await http.request(method, "")

    assert (405, "POST") == (response.status_code, response.headers["allow"])


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("body", [b"{", b"\xff", b"[]", b"[" * 100_000, b"null", b'{"id":1}'])
async def test_an_unreadable_body_is_a_client_error(http, revision, body):
    given = {**headers("tools/list", revision), "Content-Type": JSON}
    response = await http.post("", content=body, headers=given)

    assert 400 <= response.status_code < 500


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'{"jsonrpc": "2.0", "id": 1}'])
async def test_json_that_is_no_message_is_refused_in_a_sentence(http, revision, body):
    given = {**headers("tools/list", revision), "Content-Type": JSON}
    response = await http.post("", content=body, headers=given)

    assert (400, -32600) == (response.status_code, response.json()["error"]["code"])
    assert len(response.json()["error"]["message"]) < 100


@pytest.mark.parametrize("revision", REVISIONS)
async def test_no_body_breaks_the_server(http, revision):
    given = {**headers("tools/list", revision), "Content-Type": JSON}
    for body in [*NASTY, *mutants(seed=2, count=40)]:
        response = await http.post("", content=body, headers=given)

        assert response.status_code in (200, 202) or 400 <= response.status_code < 500
        assert not response.content or is_answer(response.json())

    assert 200 == (await ask(http, "tools/list", revision)).status_code


async def test_a_body_over_the_limit_is_refused(http, app):
    most = app.settings.limits.request_bytes
    response = await http.post("", content=b" " * (most + 1), headers={"Content-Type": JSON})

    assert 413 == response.status_code


@pytest.mark.parametrize("revision", [REVISIONS[0], NEWEST])
async def test_arguments_of_many_megabytes_are_accepted(http, ctx, revision):
    inbox = await new_inbox(ctx)
    outgoing_mail = {
        "inbox_id": inbox.id,
        "recipient": "x@example.com",
        "subject": "Large",
        "body": "See file.",
        "attachments": [{"filename": "a.bin", "content": "AAAA" * (6 * 1024 * 1024)}],
    }

    response = await ask(
        http, "tools/call", revision, name="send_email_with_attachments", arguments=outgoing_mail
    )

    assert "captured" == response.json()["result"]["structuredContent"]["status"]


@pytest.mark.parametrize("revision", [REVISIONS[0], NEWEST])
async def test_a_wait_ends_when_its_client_disconnects(http, app, ctx, revision):
    inbox = await new_inbox(ctx)
    arguments = {"inbox_id": inbox.id, "timeout_s": 300}
    asked = ask(http, "tools/call", revision, name="wait_for_message", arguments=arguments)
    asking = asyncio.create_task(asked)
    await until_waiting(app, 1)
    asking.cancel()
    await until_waiting(app, 0)

    assert not app.services.watch._subscriptions
