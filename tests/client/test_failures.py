"""What the client does when it is not answered, or not as it should be."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

import pytest

from postroom.client import connection
from postroom.errors import InvalidInput, MailError, RateLimited, Unavailable
from tests.client.conftest import KINDS, made
from tests.servers.ports import free_port
from tests.servers.web import Answer, Asked, WebServer

INBOX = {"id": "inb_1", "address": "bo@x", "name": "Bo", "created_at": "2026-03-01T09:00:00Z"}
SENT = {"message_id": "msg_1", "thread_id": "thr_1", "status": "sent", "recipients": []}


def problem(status: int, code: str, **more: object) -> Answer:
    return Answer(status, {"code": code, "detail": f"it is {code}", "status": status, **more})


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client waited, without waiting."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(connection.time, "sleep", found.append)
    monkeypatch.setattr(connection.anyio, "sleep", sleep)
    return found


@contextmanager
def answering(*answers: Answer) -> Iterator[WebServer]:
    """A server that gives these answers in turn, and the last one for ever."""
    left = list(answers)

    def answer(asked: Asked) -> Answer:
        return left.pop(0) if len(left) > 1 else left[0]

    with WebServer(answer) as server:
        yield server


async def test_too_many_requests_are_tried_again_when_the_server_says(kind, waits):
    limited = problem(429, "rate_limited", retry_after=7)
    limited.headers["Retry-After"] = "7"
    with answering(limited, limited, Answer(201, INBOX)) as server:
        async for caller in made(kind, server.url, "pk_1"):
            inbox = await caller.create_inbox(name="Bo")

    assert ("inb_1", [7.0, 7.0]) == (inbox.id, waits)


async def test_retries_end_with_the_error_of_the_server(kind, waits):
    with answering(problem(429, "rate_limited")) as server:
        async for caller in made(kind, server.url, retries=3):
            with pytest.raises(RateLimited, match="it is rate_limited"):
                await caller.list_inboxes()

    assert (4, 3) == (len(server.asked), len(waits))
    assert waits == sorted(waits)


async def test_a_server_that_asks_for_much_patience_is_not_asked_again(kind, waits):
    limited = problem(429, "rate_limited")
    limited.headers["Retry-After"] = "3600"
    with answering(limited) as server:
        async for caller in made(kind, server.url):
            with pytest.raises(RateLimited) as caught:
                await caller.list_inboxes()

    assert (1, 3600) == (len(server.asked), caught.value.retry_after)


async def test_the_time_to_try_again_may_be_a_date(kind, waits):
    busy = problem(503, "unavailable")
    busy.headers["Retry-After"] = formatdate(usegmt=True)
    with answering(busy, Answer(200, INBOX)) as server:
        async for caller in made(kind, server.url):
            await caller.get_inbox("inb_1")

    assert [0.0] == waits


async def test_a_send_is_repeated_under_one_key(kind, waits):
    with answering(problem(503, "unavailable"), Answer(201, SENT)) as server:
        async for caller in made(kind, server.url):
            await caller.send_message("ana@example.com", "Hello", body_text="x")
            await caller.send_message("ana@example.com", "Hello", body_text="x")
            await caller.reply_to_message("msg_1", "x", idempotency_key="mine")

    first, again, second, reply = [asked.json()["idempotency_key"] for asked in server.asked]
    assert first == again != second
    assert "mine" == reply


async def test_a_change_that_may_have_happened_is_not_repeated(kind, waits):
    with answering(problem(503, "unavailable")) as server:
        async for caller in made(kind, server.url):
            with pytest.raises(Unavailable):
                await caller.create_inbox()

    assert 1 == len(server.asked)


@pytest.mark.parametrize("code", ["internal", "something_new"])
async def test_an_internal_error_is_told_once(kind, waits, code):
    with answering(problem(500, code, request_id="req_1")) as server:
        async for caller in made(kind, server.url):
            with pytest.raises(MailError, match=f"it is {code}") as caught:
                await caller.list_inboxes()

    assert (MailError, {"request_id": "req_1"}) == (type(caught.value), caught.value.details)
    assert 1 == len(server.asked)


GARBAGE = [
    Answer(200, b"<html>Welcome</html>", {"Content-Type": "text/html"}),
    Answer(200, b"\xff\xfe\x00"),
    Answer(200, [1, 2]),
    Answer(200, {"id": 7}),
    Answer(200, {"created_at": "yesterday"}),
    Answer(200, b"[" * 100_000),
    Answer(200),
    Answer(302, b"", {"Location": "http://127.0.0.1:1/"}),
    Answer(404, {"detail": "Not Found"}),
    Answer(500, b"Traceback"),
    Answer(400, {"code": 7}),
]


@pytest.mark.parametrize("answer", GARBAGE, ids=lambda a: f"{a.status} {str(a.body)[:20]}")
async def test_another_server_is_recognised(kind, answer):
    with answering(answer) as server:
        async for caller in made(kind, server.url):
            with pytest.raises(InvalidInput, match="is not a Postroom server"):
                await caller.get_inbox("inb_1")


async def test_a_proxy_without_its_server_is_asked_again(kind, waits):
    with answering(Answer(502, b"<html>"), Answer(200, INBOX)) as server:
        async for caller in made(kind, server.url):
            found = await caller.get_inbox("inb_1")
    with answering(Answer(504, b"<html>")) as server:
        async for caller in made(kind, server.url):
            with pytest.raises(Unavailable, match="proxy"):
                await caller.get_inbox("inb_1")

    assert "inb_1" == found.id


async def test_nobody_listens(kind, waits):
    async for caller in made(kind, f"http://127.0.0.1:{free_port()}"):
        with pytest.raises(Unavailable, match="is the server running there"):
            await caller.create_inbox()

    assert 2 == len(waits)


@contextmanager
def hanging_up(*, after: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A peer that reads a request, says a little and is gone."""
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
async def test_a_peer_that_dies_is_asked_again_only_if_that_is_safe(kind, waits, after):
    with hanging_up(after=after) as (url, seen):
        async for caller in made(kind, url):
            with pytest.raises(Unavailable):
                await caller.list_inboxes()
            reads = len(seen)
            with pytest.raises(Unavailable):
                await caller.create_inbox()

    assert (3, 1) == (reads, len(seen) - reads)


async def test_a_peer_that_is_silent_is_given_up(kind):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async for caller in made(kind, url, retries=0, timeout_s=0.1):
            with pytest.raises(Unavailable, match="no response in time"):
                await caller.list_inboxes()


async def test_a_wait_that_breaks_off_goes_on_from_its_start(kind, waits):
    waited = {"message": None, "timed_out": True, "since": "evt_1"}
    with answering(Answer(502, b""), Answer(200, waited)) as server:
        async for caller in made(kind, server.url):
            await caller.wait_for_message(inbox_id="inb_1", timeout_s=30)
    with answering(Answer(502, b""), Answer(200, waited)) as other:
        async for caller in made(kind, other.url):
            await caller.wait_for_message(inbox_id="inb_1", since="msg_1")

    assert "since" not in server.asked[0].query
    assert int(server.asked[1].query["since"]) < 0
    assert "msg_1" == other.asked[1].query["since"]


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize("prefix", ["", "/mail"])
async def test_the_address_of_the_api_means_its_server(kind, prefix, suffix):
    with answering(Answer(201, INBOX)) as server:
        async for caller in made(kind, f"{server.url}{prefix}{suffix}"):
            await caller.create_inbox(name="Bo")

    assert [f"{prefix}/v1/inboxes"] == [asked.path for asked in server.asked]


@pytest.mark.parametrize(
    "url", ["localhost:8700", "ftp://x", "http://", "http://a:b@c", "http://x:99999", ""]
)
def test_what_is_no_url_is_refused(kind, url):
    with pytest.raises(InvalidInput, match="is not the address of a server"):
        KINDS[kind](url)


@pytest.mark.parametrize("key", ["", "a\nb", "ü", " pk_1"])
def test_what_cannot_be_a_key_is_refused_and_not_repeated(kind, key):
    with pytest.raises(InvalidInput, match="key:") as caught:
        KINDS[kind]("http://127.0.0.1:1", key)

    assert not key or key not in str(caught.value)
