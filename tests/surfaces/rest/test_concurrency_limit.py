"""At the concurrency limit, requests are refused before any work is done for them."""

from __future__ import annotations

import asyncio

import pytest

from postroom.pipeline.event_watch import Watch
from postroom.surfaces.mcp.server import http_app
from postroom.surfaces.rest import surface
from postroom.surfaces.rest.access import AccessControl
from postroom.surfaces.rest.server import build
from tests.mails import deliver, mail
from tests.surfaces.rest.conftest import rest_client

JSON = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


@pytest.fixture
async def clients_of_both(app, key):
    """A client of the whole server: REST and MCP."""
    endpoint = http_app(app, AccessControl.of(app, no_auth=False))
    asgi = build(app, mounts={"/mcp": endpoint})
    async with endpoint.lifespan(), rest_client(app, key, asgi=asgi) as rest:
        yield rest


def call(name, **arguments):
    asked = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/inboxes", None),
        ("POST", "/v1/inbound?recipient=x@y.example", {}),
        ("POST", "/mcp", call("list_inboxes")),
    ],
)
async def test_a_request_over_the_limit_has_retry_after(app, clients_of_both, method, path, body):
    app.concurrency_limit.running = app.concurrency_limit.limit

    response = await clients_of_both.send(method, path, json=body, headers=JSON)

    assert (503, "1") == (response.status_code, response.headers["retry-after"])
    assert "unavailable" == response.json()["code"]
    app.concurrency_limit.running -= 1
    again = await clients_of_both.send(method, path, json=body, headers=JSON)
    assert 503 != again.status_code


async def test_health_checks_are_answered_at_the_limit(app, clients_of_both):
    app.concurrency_limit.running = app.concurrency_limit.limit

    assert "ok" == (await clients_of_both.get("/healthz"))["status"]


async def test_a_slot_is_released_after_an_error(app, clients_of_both):
    app.concurrency_limit.limit = 1

    for _ in range(2):
        assert 404 == (await clients_of_both.problem("GET", "/v1/messages/msg_none"))["status"]
        assert (
            401
            == (
                await clients_of_both.send("POST", "/mcp", headers={"Authorization": ""})
            ).status_code
        )

    assert 0 == app.concurrency_limit.running


@pytest.mark.parametrize("is_mcp", [False, True], ids=["rest", "mcp"])
async def test_a_wait_for_mail_holds_no_slot(app, clients_of_both, ctx, inbox, is_mcp, monkeypatch):
    app.concurrency_limit.limit = 1
    is_waiting, after = asyncio.Event(), Watch.after

    def told(*args):
        is_waiting.set()
        return after(*args)

    monkeypatch.setattr(Watch, "after", told)
    body = call("wait_for_message", inbox_id=inbox.id, timeout_s=60)
    path = f"/v1/messages/wait?inbox_id={inbox.id}&timeout_s=60"
    how = ("POST", "/mcp", body) if is_mcp else ("GET", path, None)
    waiting = asyncio.create_task(clients_of_both.send(how[0], how[1], json=how[2], headers=JSON))
    await is_waiting.wait()

    assert 0 == app.concurrency_limit.running
    assert 0 == (await clients_of_both.get("/v1/messages", inbox_id=inbox.id))["total"]
    await deliver(ctx, inbox, mail("At last"))
    assert "At last" in (await waiting).text


async def test_a_delayed_rate_limit_error_holds_no_slot(app, clients_of_both, monkeypatch):
    app.rates.per_second, app.rates.burst = 0.001, 1
    monkeypatch.setattr(surface, "_PAUSE_S", 3600.0)
    await clients_of_both.get("/v1/inboxes")

    refused = asyncio.create_task(clients_of_both.send("GET", "/v1/inboxes"))
    while 'code="rate_limited"} 1' not in (await clients_of_both.send("GET", "/metrics")).text:
        pass

    assert (False, 0) == (refused.done(), app.concurrency_limit.running)
    refused.cancel()
