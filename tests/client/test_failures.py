"""How the client handles errors, timeouts and broken connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

import pytest

from postroom.client import connection
from postroom.errors import InvalidInput, MailError, RateLimited, Unavailable
from tests.client.conftest import KINDS, make_client
from tests.servers.ports import free_port
from tests.servers.web import HttpRequest, HttpResponse, WebServer

INBOX = {"id": "inb_1", "address": "bo@x", "name": "Bo", "created_at": "2026-03-01T09:00:00Z"}
SENT = {"message_id": "msg_1", "thread_id": "thr_1", "status": "sent", "recipients": []}


def problem(status: int, code: str, **more: object) -> HttpResponse:
    return HttpResponse(status, {"code": code, "detail": f"it is {code}", "status": status, **more})


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The delays of the client, which are recorded and skipped."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(connection.time, "sleep", found.append)
    monkeypatch.setattr(connection.anyio, "sleep", sleep)
    return found


@contextmanager
def serving_responses(*answers: HttpResponse) -> Iterator[WebServer]:
    """A server that gives these responses in turn, and repeats the last one."""
    left = list(answers)

    def answer(request: HttpRequest) -> HttpResponse:
        return left.pop(0) if len(left) > 1 else left[0]

    with WebServer(answer) as server:
        yield server


async def test_a_429_is_retried_after_the_given_delay(kind, waits):
    limited = problem(429, "rate_limited", retry_after=7)
    limited.headers["Retry-After"] = "7"
    with serving_responses(limited, limited, HttpResponse(201, INBOX)) as server:
        async for caller in make_client(kind, server.url, "pk_1"):
            inbox = await caller.create_inbox(name="Bo")

    assert ("inb_1", [7.0, 7.0]) == (inbox.id, waits)


async def test_retries_end_with_the_error_of_the_server(kind, waits):
    with serving_responses(problem(429, "rate_limited")) as server:
        async for caller in make_client(kind, server.url, retries=3):
            with pytest.raises(RateLimited, match="it is rate_limited"):
                await caller.list_inboxes()

    assert (4, 3) == (len(server.requests), len(waits))
    assert waits == sorted(waits)


async def test_a_long_retry_after_is_not_waited_for(kind, waits):
    limited = problem(429, "rate_limited")
    limited.headers["Retry-After"] = "3600"
    with serving_responses(limited) as server:
        async for caller in make_client(kind, server.url):
            with pytest.raises(RateLimited) as caught:
                await caller.list_inboxes()

    assert (1, 3600) == (len(server.requests), caught.value.retry_after)


async def test_retry_after_may_be_a_date(kind, waits):
    busy = problem(503, "unavailable")
    busy.headers["Retry-After"] = formatdate(usegmt=True)
    with serving_responses(busy, HttpResponse(200, INBOX)) as server:
        async for caller in make_client(kind, server.url):
            await caller.get_inbox("inb_1")

    assert [0.0] == waits


async def test_a_send_is_retried_with_one_idempotency_key(kind, waits):
    with serving_responses(problem(503, "unavailable"), HttpResponse(201, SENT)) as server:
        async for caller in make_client(kind, server.url):
            await caller.send_message("ana@example.com", "Hello", body_text="x")
            await caller.send_message("ana@example.com", "Hello", body_text="x")
            await caller.reply_to_message("msg_1", "x", idempotency_key="mine")

    first, again, second, reply = [request.json()["idempotency_key"] for request in server.requests]
    assert first == again != second
    assert "mine" == reply


async def test_a_change_that_may_have_happened_is_not_retried(kind, waits):
    with serving_responses(problem(503, "unavailable")) as server:
        async for caller in make_client(kind, server.url):
            with pytest.raises(Unavailable):
                await caller.create_inbox()

    assert 1 == len(server.requests)


@pytest.mark.parametrize("code", ["internal", "something_new"])
async def test_an_internal_error_is_not_retried(kind, waits, code):
    with serving_responses(problem(500, code, request_id="req_1")) as server:
        async for caller in make_client(kind, server.url):
            with pytest.raises(MailError, match=f"it is {code}") as caught:
                await caller.list_inboxes()

    assert (MailError, {"request_id": "req_1"}) == (type(caught.value), caught.value.details)
    assert 1 == len(server.requests)


GARBAGE = [
    HttpResponse(200, b"<html>Welcome</html>", {"Content-Type": "text/html"}),
    HttpResponse(200, b"\xff\xfe\x00"),
    HttpResponse(200, [1, 2]),
    HttpResponse(200, {"id": 7}),
    HttpResponse(200, {"created_at": "yesterday"}),
    HttpResponse(200, b"[" * 100_000),
    HttpResponse(200),
    HttpResponse(302, b"", {"Location": "http://127.0.0.1:1/"}),
    HttpResponse(404, {"detail": "Not Found"}),
    HttpResponse(500, b"Traceback"),
    HttpResponse(400, {"code": 7}),
]


@pytest.mark.parametrize("answer", GARBAGE, ids=lambda a: f"{a.status} {str(a.body)[:20]}")
async def test_a_server_that_is_not_postroom_is_recognised(kind, answer):
    with serving_responses(answer) as server:
        async for caller in make_client(kind, server.url):
            with pytest.raises(InvalidInput, match="is not a Postroom server"):
                await caller.get_inbox("inb_1")


async def test_a_502_of_a_proxy_is_retried(kind, waits):
    with serving_responses(HttpResponse(502, b"<html>"), HttpResponse(200, INBOX)) as server:
        async for caller in make_client(kind, server.url):
            found = await caller.get_inbox("inb_1")
    with serving_responses(HttpResponse(504, b"<html>")) as server:
        async for caller in make_client(kind, server.url):
            with pytest.raises(Unavailable, match="proxy"):
                await caller.get_inbox("inb_1")

    assert "inb_1" == found.id


async def test_a_refused_connection_is_reported(kind, waits):
    async for caller in make_client(kind, f"http://127.0.0.1:{free_port()}"):
        with pytest.raises(Unavailable, match="is the server running there"):
            await caller.create_inbox()

    assert 2 == len(waits)


@contextmanager
def hanging_up(*, after: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A peer that reads a request, sends some bytes and closes the connection."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    seen.append(peer.recv(65_536))
                    peer.sendall(after)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        listener.shutdown(socket.SHUT_RDWR)


BEGUN = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"


@pytest.mark.parametrize("after", [b"", BEGUN, b"220 smtp\r\n"])
async def test_a_broken_connection_is_retried_only_if_that_is_safe(kind, waits, after):
    with hanging_up(after=after) as (url, seen):
        async for caller in make_client(kind, url):
            with pytest.raises(Unavailable):
                await caller.list_inboxes()
            reads = len(seen)
            with pytest.raises(Unavailable):
                await caller.create_inbox()

    assert (3, 1) == (reads, len(seen) - reads)


async def test_a_request_without_a_response_times_out(kind):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async for caller in make_client(kind, url, retries=0, timeout_s=0.1):
            with pytest.raises(Unavailable, match="no response in time"):
                await caller.list_inboxes()


async def test_an_interrupted_wait_continues_from_its_start(kind, waits):
    waited = {"message": None, "timed_out": True, "since": "evt_1"}
    with serving_responses(HttpResponse(502, b""), HttpResponse(200, waited)) as server:
        async for caller in make_client(kind, server.url):
            await caller.wait_for_message(inbox_id="inb_1", timeout_s=30)
    with serving_responses(HttpResponse(502, b""), HttpResponse(200, waited)) as other:
        async for caller in make_client(kind, other.url):
            await caller.wait_for_message(inbox_id="inb_1", since="msg_1")

    assert "since" not in server.requests[0].query
    assert int(server.requests[1].query["since"]) < 0
    assert "msg_1" == other.requests[1].query["since"]


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("prefix", ["", "/mail"])
async def test_the_url_of_the_api_is_accepted_as_the_server_url(kind, prefix, suffix):
    with serving_responses(HttpResponse(201, INBOX)) as server:
        async for caller in make_client(kind, f"{server.url}{prefix}{suffix}"):
            await caller.create_inbox(name="Bo")

    assert [f"{prefix}/v1/inboxes"] == [request.path for request in server.requests]


@pytest.mark.parametrize(
    "url", ["localhost:8700", "ftp://x", "http://", "http://a:b@c", "http://x:99999", ""]
)
def test_an_invalid_url_is_refused(kind, url):
    with pytest.raises(InvalidInput, match="is not the address of a server"):
        KINDS[kind](url)


@pytest.mark.parametrize("key", ["", "a\nb", "ü", " pk_1", "pk_1\n"])
def test_an_invalid_key_is_refused_and_not_shown(kind, key):
    with pytest.raises(InvalidInput, match=r"key: it (is empty|has a space)") as caught:
        KINDS[kind]("http://127.0.0.1:1", key)

    assert not key or key not in str(caught.value)


async def test_https_to_a_server_without_tls_is_explained(kind, waits):
    with serving_responses(HttpResponse(200, {})) as server:
        url = server.url.replace("http://", "https://")
        async for caller in make_client(kind, url):
            with pytest.raises(Unavailable, match="does not use TLS; write http:// in place of"):
                await caller.list_inboxes()
