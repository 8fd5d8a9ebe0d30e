"""The server process: mounted applications, signals, and ports in use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
from contextlib import asynccontextmanager

import httpx2
import pytest

from postroom.errors import Conflict, InvalidInput
from postroom.surfaces.rest.server import build, listen
from tests.surfaces.rest.conftest import rest_client

SERVE = """
import asyncio, sys
from postroom.app import open_app
from postroom.config import read_settings
from postroom.surfaces.rest.server import build, listen, serve_on

async def endless(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    await asyncio.Event().wait()

async def lasting(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"begun", "more_body": True})
    await asyncio.sleep(0.5)
    await send({"type": "http.response.body", "body": b" and done"})

async def main():
    settings = read_settings({"POSTROOM_DATA_DIR": sys.argv[1]}).settings
    async with open_app(settings) as app:
        ready = lambda port: print(port, file=sys.stderr, flush=True)
        mounts = {"/endless": endless, "/lasting": lasting}
        await serve_on(listen("127.0.0.1", 0), build(app, mounts=mounts), ready=ready)
    print("closed", file=sys.stderr, flush=True)

asyncio.run(main())
"""


@asynccontextmanager
async def process(tmp_path):
    """A server in a process of its own, and its port."""
    served = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SERVE,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield served, int(await asyncio.wait_for(served.stderr.readline(), 30))
    finally:
        with contextlib.suppress(ProcessLookupError):
            served.kill()
        await served.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_server_after_running_requests(tmp_path, number):
    async with (
        process(tmp_path) as (served, port),
        httpx2.AsyncClient(timeout=60) as client,
        client.stream("GET", f"http://127.0.0.1:{port}/endless") as answer,
    ):
        await anext(answer.aiter_bytes())
        served.send_signal(number)
        out, err = await asyncio.wait_for(served.communicate(), 5)

    assert 0 == served.returncode
    assert b"" == out
    assert err.endswith(b"closed\n")


async def test_two_signals_at_once_do_not_cut_off_responses(tmp_path):
    """From the process group and from the parent, as with `systemctl stop` or Ctrl-C."""
    async with (
        process(tmp_path) as (served, port),
        httpx2.AsyncClient(timeout=60) as client,
        client.stream("GET", f"http://127.0.0.1:{port}/lasting") as answer,
    ):
        parts = answer.aiter_bytes()
        said = await anext(parts)
        served.send_signal(signal.SIGINT)
        served.send_signal(signal.SIGTERM)
        said += b"".join([part async for part in parts])

        assert b"begun and done" == said
        assert 0 == await asyncio.wait_for(served.wait(), 60)


async def test_a_port_in_use_is_reported():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]

        with pytest.raises(Conflict, match=f"port {port} of 127.0.0.1 is in use"):
            listen("127.0.0.1", port)


def test_responses_are_sent_without_delay():
    """asyncio sets TCP_NODELAY only for sockets with an explicit protocol."""
    with listen("127.0.0.1", 0) as bound:
        assert socket.IPPROTO_TCP == bound.proto


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
async def test_an_address_that_cannot_be_bound_is_reported(host):
    with pytest.raises(InvalidInput, match=f"cannot listen on {host}"):
        listen(host, 0)


async def test_a_mounted_application_has_the_lifespan_of_the_server(app, key):
    events = []

    @asynccontextmanager
    async def living():
        events.append("begins")
        yield
        events.append("ends")

    async def mounted(scope, receive, send):
        events.append(scope["path"])
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b"ours"})

    asgi = build(app, mounts={"/mcp": mounted}, lifespans=[living])
    async with asgi.lifespan_context(asgi), rest_client(app, key, asgi=asgi) as rest:
        whole = await rest.send("POST", "/mcp")
        below = await rest.send("GET", "/mcp/deeper")
        beside = await rest.send("GET", "/mcpx")

    assert ["begins", "/mcp", "/mcp/deeper", "ends"] == events
    assert (202, 202, 404) == (whole.status_code, below.status_code, beside.status_code)
    assert whole.headers["x-request-id"]
    assert "nosniff" == whole.headers["x-content-type-options"]


async def test_a_mounted_application_has_the_same_access_control(app, key):
    async def mounted(scope, receive, send):
        raise AssertionError("nobody comes here")

    async with rest_client(app, key, asgi=build(app, mounts={"/mcp": mounted})) as rest:
        problem = await rest.problem("POST", "/mcp", headers={"Host": "evil.example"})

    assert 403 == problem["status"]


async def test_a_large_body_is_refused_over_the_wire(app, key, serving):
    limit = app.settings.limits.request_bytes
    head = (
        "POST /v1/inboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {limit + 1}\r\n\r\n{{"
    )
    async with serving(build(app)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()

    assert answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /" + b"a" * 200_000,
    ],
)
async def test_what_is_not_http_is_a_problem_too(app, serving, sent):
    async with serving(build(app)) as port:
        answer = await exchange(port, sent)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert "malformed" == json.loads(body)["code"]


async def test_a_long_query_is_read(app, key, serving):
    labels = "&".join(["labels=" + "%F0%9F%93%AB" * 128] * 50)
    head = f"GET /v1/messages?inbox_id=inb_1&{labels} HTTP/1.1\r\nHost: localhost\r\n"
    rest = f"Connection: close\r\nAuthorization: Bearer {key}\r\n\r\n"
    async with serving(build(app)) as port:
        answer = await exchange(port, (head + rest).encode())

    assert answer.startswith(b"HTTP/1.1 404 ")


async def exchange(port, sent):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def test_a_websocket_is_not_answered(app):
    sent = []

    async def send(message):
        sent.append(message["type"])

    scope = {"type": "websocket", "path": "/v1/inboxes", "headers": []}
    await build(app)(scope, None, send)

    assert ["websocket.close"] == sent


def test_no_socket_listens_after_a_failed_start():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        probe.listen()
        with pytest.raises(Conflict):
            listen("127.0.0.1", probe.getsockname()[1])
