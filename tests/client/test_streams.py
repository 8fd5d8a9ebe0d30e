"""Event streams continue after a broken connection, without a gap."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from postroom.client import EventStream, events
from postroom.errors import InvalidInput, Unauthenticated, Unavailable
from tests.client.conftest import make_client
from tests.client.test_failures import kind as kind  # noqa: PLC0414 - a fixture
from tests.client.test_failures import problem
from tests.mails import mail
from tests.servers.web import HttpRequest, HttpResponse, WebServer


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(events.time, "sleep", found.append)
    monkeypatch.setattr(anyio, "sleep", sleep)
    return found


async def first(stream: Any, count: int) -> list[Any]:
    """The first events of a stream, which is then closed."""
    found = []
    if isinstance(stream, EventStream):
        with stream:
            for event in stream:
                found.append(event)
                if len(found) == count:
                    return found
    async with stream:
        async for event in stream:
            found.append(event)
            if len(found) == count:
                return found
    return found


async def test_a_stream_has_the_events_after_it_was_opened(postroom, inbox):
    await postroom.receive_message(inbox.address, mail("Before", to=inbox.address))
    stream = postroom.client.stream_events(inbox_id=inbox.id, types=["message.received"])
    if not isinstance(stream, EventStream):
        await stream.__aenter__()
    sent = await postroom.receive_message(inbox.address, mail("After", to=inbox.address))

    [event] = await first(stream, 1)

    assert ("message.received", sent.message_id) == (event.type, event.message_id)
    assert event.untrusted


def line(number: int) -> bytes:
    event = {"id": f"evt_{number}", "type": "message.received", "at": "2026-03-01T09:00:00Z"}
    return f"id: evt_{number}\ndata: {json.dumps(event)}\n\n".encode()


class CuttingServer:
    """A server that closes streams after two events each."""

    def __init__(self) -> None:
        self.since: list[str] = []

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/v1/events":
            return HttpResponse(200, {"results": [{"id": "evt_3"}], "total": 1, "has_more": False})
        self.since.append(request.query["since"])
        number = int(request.query["since"].removeprefix("evt_"))
        pieces = [b": open\n\n", line(number + 1), line(number + 2), b'data: {"id": "evt']
        return HttpResponse(200, headers={"Content-Type": "text/event-stream"}, pieces=pieces)


async def test_an_interrupted_stream_continues_after_the_last_event(kind, no_wait):
    server = CuttingServer()
    with WebServer(server) as web:
        async for caller in make_client(kind, web.url):
            events = await first(caller.client.stream_events(), 5)

    assert [f"evt_{number}" for number in range(4, 9)] == [event.id for event in events]
    assert ["evt_3", "evt_5", "evt_7"] == server.since


async def test_a_stream_whose_key_was_revoked_ends(kind, no_wait):
    def answer(request: HttpRequest) -> HttpResponse:
        if len(web.requests) > 1:
            return problem(401, "unauthenticated")
        return HttpResponse(200, pieces=[line(1)])

    with WebServer(answer) as web:
        async for caller in make_client(kind, web.url):
            with pytest.raises(Unauthenticated):
                await first(caller.client.stream_events(since="evt_0"), 2)


async def test_a_stream_ends_with_an_error_if_the_server_is_gone(kind, no_wait):
    with WebServer(lambda _: HttpResponse(200, pieces=[line(1)])) as web:
        async for caller in make_client(kind, web.url):
            stream = caller.client.stream_events(since="evt_0")
            if not isinstance(stream, EventStream):
                await stream.__aenter__()
            web.answer = lambda _: problem(503, "unavailable")
            with pytest.raises(Unavailable):
                await first(stream, 2)

    assert 10 == len(no_wait)
    assert 30.0 == max(no_wait)


async def test_a_response_that_is_not_a_stream_is_an_error(kind, no_wait):
    with WebServer(lambda _: HttpResponse(404, b"<html>")) as web:
        async for caller in make_client(kind, web.url):
            with pytest.raises(InvalidInput, match="is not a Postroom server"):
                await first(caller.client.stream_events(since="evt_0"), 1)
