"""Request bodies that do not arrive do not block other requests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import pytest

from postroom.admission.rate_limits import MAX_AT_ONCE
from postroom.app import open_app
from postroom.config import read_settings
from postroom.surfaces.mcp.server import http_app
from postroom.surfaces.rest import surface
from postroom.surfaces.rest.access import AccessControl
from postroom.surfaces.rest.server import build
from tests.surfaces.rest.conftest import rest_client

STALLED = MAX_AT_ONCE + 2


@pytest.fixture
async def services(tmp_path):
    """A Postroom that two providers may post to."""
    values = {
        "DATA_DIR": str(tmp_path / "data"),
        "MAILGUN_SIGNING_KEY": "key-3ax6xnjp29jd6fds4gc373sgvjxteol0",
        "POSTMARK_LOGIN": "postmark:canary-of-postmark",
        "SES_TOPICS": "arn:aws:sns:eu-west-1:123456789012:mail",
    }
    settings = read_settings({f"POSTROOM_{name}": value for name, value in values.items()}).settings
    async with open_app(settings) as app:
        yield app


@asynccontextmanager
async def stalled(port, path, key=None, count=STALLED):
    """Connections that announce a body and never send it."""
    login = f"Authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{login}Content-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{"
    )
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in opened:
        writer.write(head.encode())
        await writer.drain()
    try:
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize(
    ("path", "has_key"),
    [
        ("/v1/inbound/mailgun", False),
        ("/v1/inbound/sendgrid", False),
        ("/v1/messages", True),
        ("/mcp", True),
    ],
)
async def test_stalled_bodies_do_not_block_other_clients(services, serving, path, has_key):
    owner = await services.owner_key() or ""
    endpoint = http_app(services, AccessControl.of(services, no_auth=False))
    asgi = build(services, mounts={"/mcp": endpoint}, lifespans=[endpoint.lifespan])
    async with rest_client(services, owner) as rest:
        reader = await rest.post("/v1/keys", name="reader", scopes=["read"])
    async with (
        serving(asgi) as port,
        stalled(port, path, reader["key"] if has_key else None),
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {owner}"}, timeout=60) as client,
    ):
        async with asyncio.timeout(10):
            url = f"http://127.0.0.1:{port}/v1/inboxes"
            answers = [await _answer(client, url) for _ in range(50)]

    assert [200] * 50 == answers


async def _answer(client, url):
    """Retry until there is capacity: while the keys of the others are verified, there is none."""
    while (response := await client.get(url)).status_code == 503:
        pass
    return response.status_code


async def test_a_stalled_body_times_out_and_closes_the_connection(services, serving, monkeypatch):
    def impatient(key_id):
        return replace(keyed_client(key_id), silence_s=0.01)

    keyed_client = surface.keyed_client
    monkeypatch.setattr(surface, "keyed_client", impatient)
    key = await services.owner_key()
    async with (
        serving(build(services)) as port,
        stalled(port, "/v1/messages", key, count=1) as (reader,),
    ):
        answer = await asyncio.wait_for(reader.read(), 10)

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"too_slow"' in answer


@pytest.mark.parametrize(
    ("provider", "headers", "status"),
    [
        ("sendgrid", {}, 404),
        ("unheard-of", {}, 422),
        ("postmark", {"Authorization": "Basic Og=="}, 401),
        ("ses", {"Content-Length": "2000000"}, 413),
    ],
)
async def test_errors_in_headers_are_reported_before_the_body_is_read(
    services, provider, headers, status
):
    read = []

    async def content():
        read.append(1)
        yield b"{}"

    async with rest_client(services, None) as rest:
        problem = await rest.problem(
            "POST", f"/v1/inbound/{provider}", content=content(), headers=headers
        )

    assert (status, []) == (problem["status"], read)
