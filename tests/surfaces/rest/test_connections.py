"""Idle and slow connections are closed, and do not exclude other clients."""

from __future__ import annotations

import asyncio
import json
import resource
import smtplib
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager

import httpx2
import pytest

from postroom.surfaces import connections
from postroom.surfaces.mcp.server import http_app
from postroom.surfaces.rest import http_protocol
from postroom.surfaces.rest.access import AccessControl
from postroom.surfaces.rest.server import build
from tests.mails import deliver, mail
from tests.servers.ports import free_port
from tests.servers.postroom import Running, command, environment

LIVES = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
BEGUN = b"GET /healthz HTTP/1.1\r\nX: "
PATIENCE_S = 60


@asynccontextmanager
async def connected(port, said=b""):
    """A connection on which some bytes were sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answer(reader):
    """The body of the next response."""
    async with asyncio.timeout(PATIENCE_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        sizes = [line for line in head.splitlines() if line.lower().startswith("content-length")]
        body = await reader.readexactly(int(sizes[0].partition(":")[2]))
    return int(head.split()[1]), json.loads(body)


async def rest_of(reader):
    """Everything until the connection ends; it may end while we send."""
    said = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while piece := await reader.read(65_536):
                said += piece
    except ConnectionError:
        pass
    return said


@pytest.fixture
def short_timeouts(monkeypatch):
    """Short for a test, but long enough for headers sent at once on a busy machine."""
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.5)


async def test_a_silent_connection_times_out(app, serving, short_timeouts):
    async with serving(build(app)) as port, connected(port) as (reader, _):
        assert b"" == await rest_of(reader)


async def test_endless_headers_time_out(app, serving, short_timeouts):
    async with serving(build(app)) as port, connected(port, BEGUN) as (reader, _):
        status, problem = await answer(reader)

        assert (408, "too_slow") == (status, problem["code"])
        assert b"" == await rest_of(reader)


@pytest.mark.parametrize("before", [b"", LIVES], ids=["the first", "another"])
async def test_slow_headers_time_out(app, serving, short_timeouts, before):
    async with serving(build(app)) as port, connected(port, before) as (reader, writer):
        if before:
            assert 200 == (await answer(reader))[0]
        writer.write(BEGUN)
        heard = asyncio.create_task(answer(reader))
        while not (await asyncio.wait([heard], timeout=0.001))[0]:
            writer.write(b"x")

    assert 408 == heard.result()[0]


async def test_the_rest_of_a_refused_body_is_not_awaited(app, serving, short_timeouts):
    head = b"POST /v1/inboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n"
    async with serving(build(app)) as port, connected(port, head) as (reader, writer):
        assert 401 == (await answer(reader))[0]
        heard = asyncio.create_task(rest_of(reader))
        while not (await asyncio.wait([heard], timeout=0.001))[0]:
            writer.write(b"x")

    assert b"" == heard.result()


async def test_a_client_that_does_not_read_is_disconnected(app, serving, monkeypatch):
    monkeypatch.setattr(http_protocol, "UNREAD_S", 0.05)
    async with serving(build(app)) as port, connected(port) as (reader, writer):
        reader._transport.pause_reading()
        with pytest.raises(ConnectionError):
            await _ask_without_end(writer)


async def _ask_without_end(writer):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            writer.write(LARGE * 100)
            await writer.drain()


async def test_waits_and_event_streams_are_not_closed(
    app, serving, ctx, inbox, short_timeouts, key
):
    endpoint = http_app(app, AccessControl.of(app, no_auth=False))
    asgi = build(app, mounts={"/mcp": endpoint}, lifespans=[endpoint.lifespan])
    login = f"Host: localhost\r\nAuthorization: Bearer {key}\r\n"
    stream = f"GET /v1/events/stream?inbox_id={inbox.id} HTTP/1.1\r\n{login}\r\n".encode()
    async with serving(asgi) as port, connected(port, stream) as (events, _):
        await events.readuntil(b": open\n\n")
        wait = asyncio.create_task(_wait_over_mcp(port, key, inbox))
        for _ in range(3):
            async with connected(port, BEGUN) as (late, _):
                assert 408 == (await answer(late))[0]
        await deliver(ctx, inbox, mail("Hello"))

        async with asyncio.timeout(PATIENCE_S):
            assert b"message.received" in await events.readuntil(b"\n\n")
            assert "Hello" in await wait


async def _wait_over_mcp(port, key, inbox):
    asked = {"name": "wait_for_message", "arguments": {"inbox_id": inbox.id, "timeout_s": 60}}
    question = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
        "Authorization": f"Bearer {key}",
    }
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as client:
        return (await client.post(f"http://127.0.0.1:{port}/mcp", json=question)).text


async def test_at_the_limit_the_longest_idle_connection_is_closed(app, serving, monkeypatch):
    monkeypatch.setattr(connections, "MAX_HTTP", 3)
    async with (
        serving(build(app)) as port,
        connected(port, BEGUN) as (oldest, _),
        connected(port, LIVES) as (second, asking),
        connected(port, LIVES) as (third, _),
    ):
        assert [200, 200] == [(await answer(reader))[0] for reader in (second, third)]
        async with connected(port, LIVES) as (fourth, _):
            assert 200 == (await answer(fourth))[0]
            status, problem = await answer(oldest)
            assert (503, "unavailable", 1) == (status, problem["code"], problem["retry_after"])
            asking.write(LIVES)
            assert 200 == (await answer(second))[0]
            async with connected(port, LIVES) as (fifth, _):
                assert 200 == (await answer(fifth))[0]

        assert b"" == await rest_of(third)


async def test_a_connection_with_a_running_request_is_never_closed(
    app, serving, inbox, key, monkeypatch
):
    monkeypatch.setattr(connections, "MAX_HTTP", 32)
    login = f"Host: localhost\r\nAuthorization: Bearer {key}\r\n"
    stream = f"GET /v1/events/stream?inbox_id={inbox.id} HTTP/1.1\r\n{login}\r\n".encode()
    ask = f"GET /v1/inboxes HTTP/1.1\r\n{login}\r\n".encode()
    async with serving(build(app)) as port, AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(connected(port, stream)) for _ in range(30)]
        for reader, _ in streams:
            await reader.readuntil(b": open\n\n")
        for _ in range(5):
            reader, _ = await stack.enter_async_context(connected(port, ask))
            status, problem = await answer(reader)
            assert (503, "unavailable") == (status, problem["code"])
        lives, _ = await stack.enter_async_context(connected(port, LIVES))

        assert 200 == (await answer(lives))[0]
        assert not any(reader.at_eof() for reader, _ in streams)


@pytest.fixture
def small(tmp_path):
    """A server with at most 256 open files."""
    port, key = free_port(), "pk_canary_of_a_small_server"
    more = {"POSTROOM_PORT": str(port), "POSTROOM_API_KEY": key}
    more["POSTROOM_SMTP_LISTEN"] = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        command("serve"),
        env=environment(tmp_path / "data", more),
        stdout=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),  # noqa: PLW1509
    )
    try:
        assert process.stdout.readline()
        yield Running(f"http://127.0.0.1:{port}", key, tmp_path / "data", process, more)
    finally:
        process.terminate()
        process.communicate()


async def test_a_thousand_silent_connections_do_not_block_others(small):
    connections.allow_files()
    port = int(small.extra["POSTROOM_PORT"])
    smtp = int(small.extra["POSTROOM_SMTP_LISTEN"].partition(":")[2])
    login = {"Authorization": f"Bearer {small.key}"}
    async with (
        AsyncExitStack() as stack,
        httpx2.AsyncClient(base_url=small.url, headers=login, timeout=PATIENCE_S) as client,
    ):
        for said in [b"", BEGUN] * 500:
            await stack.enter_async_context(connected(port, said))
        made = await client.post("/v1/inboxes", json={"name": "bo"})
        address = made.json()["address"]
        posted = await asyncio.to_thread(_post, smtp, address)
        listed = await client.get("/v1/messages", params={"inbox_id": made.json()["id"]})
        ready = await client.get("/readyz")

    assert (201, {}, 200) == (made.status_code, posted, ready.status_code)
    assert ["Hello"] == [message["subject"] for message in listed.json()["results"]]


def _post(port, recipient):
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as session:
        outgoing_mail = mail("Hello").replace(b"\n", b"\r\n")
        return session.sendmail("ann@example.com", [recipient], outgoing_mail)


async def test_a_thousand_connections_are_served(app, serving):
    connections.allow_files()
    async with serving(build(app)) as port, AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(connected(port)) for _ in range(1_000)]
        for _ in range(2):
            for _, writer in opened:
                writer.write(LIVES)
            statuses = [(await answer(reader))[0] for reader, _ in opened]

            assert [200] * 1_000 == statuses


@pytest.mark.parametrize(
    ("files", "http", "smtp"),
    [
        (256, 64, 32),
        (1_024, 256, 128),
        (4_096, 1_024, 512),
        (resource.RLIM_INFINITY, 4_096, 1_000),
    ],
)
def test_a_quarter_of_the_file_descriptors_is_reserved(monkeypatch, files, http, smtp):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))

    assert (http, smtp) == (
        connections.http_connections(),
        connections.smtp_connections(),
    )
