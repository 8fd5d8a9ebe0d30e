"""Pages on another port of this machine cannot use a server without keys."""

from __future__ import annotations

import json

import httpx2
import pytest

from tests.servers.postroom import running

INBOX = b'{"name": "ana"}'
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "create_inbox", "arguments": {"username": "bo"}},
}
MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
JSON = {"Content-Type": "application/json"}
FORMS = [
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": "multipart/form-data; boundary=x"},
    {},
]
CHANGES = [
    ("POST", "/v1/inboxes"),
    ("POST", "/v1/outbox/pause"),
    ("POST", "/v1/inbound?recipient=ana@postroom.localhost"),
    ("POST", "/v1/inbound/mailgun"),
    ("POST", "/v1/keys"),
    ("DELETE", "/v1/keys/owner"),
    ("PATCH", "/v1/messages/msg_none"),
    ("POST", "/mcp"),
    ("DELETE", "/mcp"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages") / "data"
    key = {"POSTROOM_MAILGUN_SIGNING_KEY": "key-of-mailgun-for-tests"}
    with running(folder, options=["--no-auth"], **key) as server:
        yield server


@pytest.fixture
def client(server):
    with httpx2.Client(base_url=server.url, timeout=60) as client:
        yield client


def others(server) -> dict[str, dict[str, str]]:
    """The headers of a request from a page of another origin."""
    port = server.url.rpartition(":")[2]
    origins = [
        "http://127.0.0.1:3000",
        "http://localhost:3000",
        "http://127.0.0.1",
        f"https://127.0.0.1:{port}",
        f"http://localhost:{port}",
        f"http://127.0.0.2:{port}",
        f"http://[::1]:{port}",
        f"http://app.localhost:{port}",
        f"http://127.0.0.1:{port}.evil.example",
        f"http://127.0.0.1:{port}@evil.example",
        f"{server.url}/",
        f"{server.url}, http://localhost:3000",
        "http://evil.example",
        "null",
        "",
        "file://",
    ]
    found = {f"origin {origin}": {"Origin": origin} for origin in origins}
    sites = {f"site {site}": {"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")}
    unknown = {"site unknown": {"Sec-Fetch-Site": "x"}}
    lying = {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-origin"}
    return {**found, **sites, **unknown, "both": lying}


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_page_of_another_port_changes_nothing(client, server, method, path):
    body = json.dumps(CALL).encode() if path == "/mcp" else INBOX
    for who, headers in others(server).items():
        for kind in [JSON, *FORMS]:
            response = client.request(method, path, content=body, headers={**headers, **kind})

            assert 403 == response.status_code, (who, kind, response.text)
            assert not [name for name in response.headers if "access-control" in name]
    assert [] == client.get("/v1/inboxes").json()["results"]


def test_a_form_without_a_body_changes_nothing_either(client, server):
    for headers in others(server).values():
        assert 403 == client.post("/v1/outbox/pause", headers=headers).status_code

    assert 0 == client.get("/v1/outbox").json()["total"]
    assert "postroom_outbox_paused 0" in client.get("/metrics").text


@pytest.mark.parametrize("path", ["/v1/inboxes", "/mcp", "/v1/keys"])
def test_a_preflight_of_another_origin_is_refused(client, path):
    asking = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,x-requested-with",
    }
    response = client.request("OPTIONS", path, headers=asking)

    assert response.status_code >= 400
    assert not [name for name in response.headers if "access-control" in name]


@pytest.mark.parametrize("path", ["/v1/inboxes", "/v1/keys", "/openapi.json", "/metrics"])
def test_another_origin_cannot_read_responses(client, path):
    response = client.get(path, headers={"Origin": "http://localhost:3000"})

    assert "same-origin" == response.headers["cross-origin-resource-policy"]
    assert "nosniff" == response.headers["x-content-type-options"]
    assert not [name for name in response.headers if "access-control" in name]


def test_our_own_pages_and_programs_are_accepted(client, server):
    key = client.post("/v1/keys", json={"name": "k", "scopes": ["read", "write"]}).json()["key"]
    ways = [
        {"Origin": server.url},
        {"Origin": server.url, "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin"},
        {},
        {"Origin": "http://localhost:3000", "X-Requested-With": "fetch"},
        {"Origin": "http://localhost:3000", "X-API-Key": key},
        {"Sec-Fetch-Site": "cross-site", "X-Requested-With": "fetch"},
    ]
    made = [client.post("/v1/inboxes", content=b"{}", headers={**JSON, **way}) for way in ways]
    called = [client.post("/mcp", json=CALL, headers={**MCP, **way}) for way in ways]

    assert [201] * len(ways) == [response.status_code for response in made]
    assert [200] * len(ways) == [response.status_code for response in called]


@pytest.mark.parametrize("form", ["Authorization: Bearer {}", "X-API-Key: {}"])
def test_over_mcp_a_given_key_is_used(client, form):
    asked = {"name": "reader", "scopes": ["read"], "inboxes": []}
    reader = client.post("/v1/keys", json=asked).json()["key"]

    def call(tool, key):
        name, value = form.format(key).split(": ")
        body = {**CALL, "params": {"name": tool, "arguments": {}}}
        return client.post("/mcp", json=body, headers={**MCP, name: value})

    client.post("/v1/inboxes", json={})
    seen, refused = (call(tool, reader).json() for tool in ("list_inboxes", "create_inbox"))

    assert 0 == seen["result"]["structuredContent"]["total"]
    assert "PERMISSION_DENIED" == refused["result"]["structuredContent"]["error"]["code"]
    assert 401 == call("list_inboxes", "wrong").status_code


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "192.168.0.7"]
)
def test_dns_rebinding_is_refused(client, host):
    headers = {"Host": host, "Origin": f"http://{host}", "X-Requested-With": "x"}
    for method, path in [*CHANGES, ("GET", "/v1/inboxes"), ("GET", "/metrics"), ("GET", "/docs")]:
        assert 403 == client.request(method, path, headers=headers).status_code
        assert 403 == client.request(method, path, headers={"Host": host}).status_code


def test_the_origin_of_the_public_url_is_accepted(tmp_path):
    public = {"POSTROOM_PUBLIC_URL": "https://Mail.example.com:443/postroom"}
    origins = (
        "https://mail.example.com",
        "http://mail.example.com",
        "https://mail.example.com:8443",
        "https://mail.example.com.evil.example",
    )
    with (
        running(tmp_path / "data", options=["--no-auth"], **public) as server,
        httpx2.Client(base_url=server.url, timeout=60) as client,
    ):
        statuses = [
            client.post("/v1/inboxes", headers={"Origin": origin}).status_code for origin in origins
        ]

    assert [201, 403, 403, 403] == statuses
