"""JSON nested deeper than 64 levels is refused on every path of a running server."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import httpx2
import pytest

from tests.servers.postroom import running
from tests.surfaces.rest.inbound.provider_requests import (
    MAILGUN_KEY,
    TOPIC,
    form,
    mailgun_signature,
)

DEPTHS = [65, 100, 199, 250, 900, 5_000, 100_000]
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
PROGRESS = {"_meta": {"progressToken": 1}}
NEWEST = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


def deep(levels: int, kind: str = "lists") -> str:
    if kind == "lists":
        return "[" * levels + "]" * levels
    return '{"a":' * levels + "1" + "}" * levels


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = {"POSTROOM_MAILGUN_SIGNING_KEY": MAILGUN_KEY, "POSTROOM_SES_TOPICS": TOPIC}
    with running(tmp_path_factory.mktemp("deep") / "data", **settings) as server:
        yield server
        assert "Traceback" not in server.log
        assert len(server.log.splitlines()) < 100


@pytest.fixture
def client(server):
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    with httpx2.Client(base_url=server.url, headers=headers, timeout=60) as client:
        yield client


@pytest.mark.parametrize("kind", ["lists", "objects"])
@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize(
    ("method", "path", "around"),
    [
        ("POST", "/v1/inboxes", '{"name": %s}'),
        ("POST", "/v1/inboxes", '{"unknown": %s}'),
        ("POST", "/v1/messages", '{"to": ["a@b.example", %s], "text": "x"}'),
        ("POST", "/v1/rules", '{"definition": %s}'),
        ("PATCH", "/v1/memories/tea", '{"text": %s}'),
        ("POST", "/v1/memories", '{"key": "tea", "text": "x", "links": [%s]}'),
    ],
)
def test_a_body_over_the_limit_is_invalid_input(client, method, path, around, levels, kind):
    response = client.request(method, path, content=around % deep(levels, kind))

    assert (422, "invalid_input") == (response.status_code, response.json()["code"])
    assert "64 levels" in response.json()["detail"]


def test_a_body_of_64_levels_is_accepted(client):
    response = client.post("/v1/inboxes", content=f'{{"name": {deep(63)}}}')

    assert 422 == response.status_code
    assert "levels" not in response.json()["detail"]


@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize("params", [{}, PROGRESS, NEWEST], ids=["plain", "progress", "newest"])
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_an_mcp_call_is_refused_with_a_protocol_error(client, levels, params, revision):
    arguments = f'{{"username": {deep(levels)}}}'
    known = json.dumps({**CALL, "params": {"name": "create_inbox", **params}})
    body = known.removesuffix("}}") + f', "arguments": {arguments}}}}}'
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "create_inbox",
    }
    response = client.post("/mcp", content=body, headers=headers)

    assert 400 == response.status_code
    answer = response.json()
    assert ("2.0", 7, -32600) == (answer["jsonrpc"], answer["id"], answer["error"]["code"])
    assert "64 levels" in answer["error"]["message"]


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_notice_of_amazon_is_invalid_input(client, levels):
    response = client.post(
        "/v1/inbound/ses", content=f'{{"TopicArn": "{TOPIC}", "Message": {deep(levels)}}}'
    )

    assert (422, "invalid_input") == (response.status_code, response.json()["code"])


@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize("field", ["message-headers", "content-id-map"])
def test_a_form_field_with_json_is_invalid_input(client, server, levels, field):
    fields = {
        **mailgun_signature(datetime.now(UTC), token=f"{field}-{levels}".ljust(50, "a")),
        "recipient": "a@postroom.localhost",
        "sender": "b@example.com",
        "attachment-count": "1",
        "message-headers": "[]",
        field: deep(levels, "lists" if field == "message-headers" else "objects"),
    }
    post = form(fields, {"attachment-1": ("a.txt", "text/plain", b"a")})
    response = client.post("/v1/inbound/mailgun", content=post.body, headers=post.headers)

    assert 422 == response.status_code, response.text
