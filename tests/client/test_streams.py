"""Streams of events go on after a cut, without a gap."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from postroom.client import EventStream, events
from postroom.errors import InvalidInput, Unauthenticated, Unavailable
from tests.client.conftest import made
from tests.client.test_failures import kind as kind  # noqa: PLC0414 - a fixture
from tests.client.test_failures import problem
from tests.mails import mail
from tests.servers.web import Answer, Asked, WebServer


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(events.time, "sleep", found.append)
    monkeypatch.setattr(anyio, "sleep", sleep)
    return found


async def first(stream: Any, count: int) -> list[Any]:
    """Some events of a stream, which is closed then."""
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


async def test_a_stream_tells_what_happens_after_it_was_opened(postroom, inbox):
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


class Cutting:
    """A server whose streams break off after two events each."""

    def __init__(self) -> None:
        self.since: list[str] = []

    def __call__(self, asked: Asked) -> Answer:
        if asked.path == "/v1/events":
            return Answer(200, {"results": [{"id": "evt_3"}], "total": 1, "has_more": False})
        self.since.append(asked.query["since"])
        number = int(asked.query["since"].removeprefix("evt_"))
        pieces = [b": open\n\n", line(number + 1), line(number + 2), b'data: {"id": "evt']
        return Answer(200, headers={"Content-Type": "text/event-stream"}, pieces=pieces)


async def test_a_stream_that_is_cut_goes_on_after_the_last_event(kind, no_wait):
    server = Cutting()
    with WebServer(server) as web:
        async for caller in made(kind, web.url):
            events = await first(caller.client.stream_events(), 5)

    assert [f"evt_{number}" for number in range(4, 9)] == [event.id for event in events]
    assert ["evt_3", "evt_5", "evt_7"] == server.since


async def test_a_stream_whose_key_was_revoked_ends(kind, no_wait):
    def answer(asked: Asked) -> Answer:
        if len(web.asked) > 1:
            return problem(401, "unauthenticated")
        return Answer(200, pieces=[line(1)])

    with WebServer(answer) as web:
        async for caller in made(kind, web.url):
            with pytest.raises(Unauthenticated):
                await first(caller.client.stream_events(since="evt_0"), 2)


async def test_a_stream_gives_up_a_server_that_is_gone(kind, no_wait):
    with WebServer(lambda _: Answer(200, pieces=[line(1)])) as web:
        async for caller in made(kind, web.url):
            stream = caller.client.stream_events(since="evt_0")
            if not isinstance(stream, EventStream):
                await stream.__aenter__()
            web.answer = lambda _: problem(503, "unavailable")
            with pytest.raises(Unavailable):
                await first(stream, 2)

    assert 10 == len(no_wait)
    assert 30.0 == max(no_wait)


async def test_garbage_is_no_stream(kind, no_wait):
    with WebServer(lambda _: Answer(404, b"<html>")) as web:
        async for caller in made(kind, web.url):
            with pytest.raises(InvalidInput, match="is not a Postroom server"):
                await first(caller.client.stream_events(since="evt_0"), 1)
