"""Event streams have each event once, in order, also after reconnecting."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from postroom.app import App
from postroom.calls.operation import call
from postroom.model.view import EVERYTHING
from postroom.operations.mail.message_changes import delete_message
from postroom.pipeline.ingest import Arrival, receive_many
from postroom.surfaces.rest.server import build, listen, serve_on
from tests.mails import deliver, mail, new_inbox

PATIENCE_S = 50


class EventStream:
    """An open stream of events."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()

    async def begun(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await anext(self._lines) != ": open":
                pass

    async def next(self) -> dict[str, Any]:
        """The next event: its id, its type and its data."""
        event: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE_S):
            while "data" not in event:
                name, _, value = (await anext(self._lines)).partition(": ")
                if name in ("id", "event", "data"):
                    event[name] = value
        return {**event, "data": json.loads(event["data"])}

    async def rest(self) -> str:
        """All data until the stream ends."""
        async with asyncio.timeout(PATIENCE_S):
            return "".join([line async for line in self._lines])

    async def subjects(self, count: int) -> list[str]:
        return [(await self.next())["data"]["data"]["subject"] for _ in range(count)]


@asynccontextmanager
async def listening(
    port: int, key: str, last: str | None = None, **query: str
) -> AsyncIterator[EventStream]:
    headers = {"Authorization": f"Bearer {key}"}
    if last is not None:
        headers["Last-Event-ID"] = last
    url = f"http://127.0.0.1:{port}/v1/events/stream"
    async with (
        httpx2.AsyncClient(timeout=PATIENCE_S) as client,
        client.stream("GET", url, headers=headers, params=query) as response,
    ):
        assert 200 == response.status_code
        assert "text/event-stream" == response.headers["content-type"]
        opened = EventStream(response)
        await opened.begun()
        yield opened


async def left(app: App) -> None:
    """Wait until no stream is open."""
    async with asyncio.timeout(PATIENCE_S):
        while app.services.watch._subscriptions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
async def port(app, serving):
    async with serving(build(app)) as port:
        yield port


async def test_an_event_is_streamed_at_once(app, ctx, key, port, inbox):
    async with listening(port, key) as stream:
        await arrived(app)
        added = await deliver(ctx, inbox, mail("Now"))
        event = await stream.next()

    listed = await ctx.store.event_number(event["id"], EVERYTHING)
    assert listed
    assert "message.received" == event["event"] == event["data"]["type"]
    assert (added.message_id, True) == (event["data"]["message_id"], event["data"]["untrusted"])
    await left(app)


async def arrived(app: App) -> None:
    """Wait until a stream is open."""
    async with asyncio.timeout(PATIENCE_S):
        while not app.services.watch._subscriptions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_stream_resumes_after_reconnecting(app, ctx, key, port, inbox):
    async with listening(port, key) as stream:
        await arrived(app)
        await deliver(ctx, inbox, mail("One"))
        first = await stream.next()
    await left(app)
    for subject in ("Two", "Three"):
        await deliver(ctx, inbox, mail(subject))

    async with listening(port, key, first["id"]) as stream:
        missed = await stream.subjects(2)
        await deliver(ctx, inbox, mail("Four"))
        new = await stream.subjects(1)

    assert ["Two", "Three", "Four"] == missed + new


async def test_a_stream_resumes_after_a_removed_message(app, ctx, key, port, inbox):
    async with listening(port, key) as stream:
        await arrived(app)
        added = await deliver(ctx, inbox, mail("One"))
        first = await stream.next()
    await left(app)
    await deliver(ctx, inbox, mail("Two"))
    await call(ctx, delete_message, {"message_id": added.message_id, "permanent": True})

    async with listening(port, key, first["id"]) as stream:
        missed = await stream.subjects(1)

    assert ["Two"] == missed


async def test_imported_mail_is_not_streamed(app, ctx, key, port, inbox):
    async with listening(port, key) as stream:
        await arrived(app)
        await receive_many(ctx, [Arrival(mail("Old"), inbox.id, is_imported=True)])
        await deliver(ctx, inbox, mail("New"))
        told = await stream.subjects(1)

    assert ["New"] == told


async def test_a_stream_has_events_of_visible_inboxes_only(app, ctx, rest, port, inbox):
    other = await new_inbox(ctx, "other")
    made = await rest.post("/v1/keys", name="tenant", scopes=["read"], inboxes=[other.id])
    async with listening(port, made["key"]) as stream:
        await arrived(app)
        await deliver(ctx, inbox, mail("Not yours"))
        await deliver(ctx, other, mail("Yours"))
        told = await stream.subjects(1)

    assert ["Yours"] == told


async def test_a_stream_ends_with_its_key(app, ctx, rest, port, inbox):
    made = await rest.post("/v1/keys", name="agent", scopes=["read"])
    async with listening(port, made["key"]) as stream:
        await arrived(app)
        await rest.ask("DELETE", f"/v1/keys/{made['id']}")
        rest_of_it = await stream.rest()

    await left(app)
    assert "" == rest_of_it


async def test_a_stream_ends_when_the_owners_key_is_replaced(app, key, port):
    async with listening(port, key) as stream:
        await arrived(app)
        await app.reset_owner_key()
        rest_of_it = await stream.rest()

    await left(app)
    assert "" == rest_of_it


async def test_a_wait_ends_with_its_key(app, rest, port, inbox):
    made = await rest.post("/v1/keys", name="agent", scopes=["read"])
    url = f"http://127.0.0.1:{port}/v1/messages/wait?inbox_id={inbox.id}&timeout_s=60"
    headers = {"Authorization": f"Bearer {made['key']}"}
    async with httpx2.AsyncClient(timeout=PATIENCE_S, headers=headers) as client:
        waiting = asyncio.create_task(client.get(url))
        await arrived(app)
        await rest.ask("DELETE", f"/v1/keys/{made['id']}")
        answer = await waiting

    assert 401 == answer.status_code
    assert "revoked" in answer.json()["detail"]


async def test_a_server_that_stops_ends_its_streams(app, key, inbox, caplog):
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    asgi, stopping = build(app), app.services.watch.close
    serving = serve_on(listen("127.0.0.1", 0), asgi, ready=port.set_result, stopping=stopping)
    task = asyncio.create_task(serving)
    async with listening(await port, key) as stream:
        await arrived(app)
        os.kill(os.getpid(), signal.SIGTERM)
        await stream.rest()
    await task

    assert [] == [record for record in caplog.records if record.levelname == "ERROR"]


async def test_inboxes_and_types_filter_a_stream(app, ctx, key, port, inbox):
    other = await new_inbox(ctx, "other")
    wanted = {"inbox_id": other.id, "types": "message.received"}
    async with listening(port, key, **wanted) as stream:
        await arrived(app)
        await deliver(ctx, inbox, mail("Elsewhere"))
        await deliver(ctx, other, mail("Here"))
        told = await stream.subjects(1)

    assert ["Here"] == told


async def test_a_wait_ends_with_the_mail_or_the_connection(app, ctx, key, port, inbox):
    url = f"http://127.0.0.1:{port}/v1/messages/wait"
    query = {"inbox_id": inbox.id, "timeout_s": 60}
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(timeout=PATIENCE_S, headers=headers) as client:
        waiting = asyncio.create_task(client.get(url, params=query))
        await arrived(app)
        added = await deliver(ctx, inbox, mail("At last"))
        answer = (await waiting).json()
        leaving = asyncio.create_task(client.get(url, params=query))
        await arrived(app)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)

    await left(app)
    assert (added.message_id, False) == (answer["message"]["id"], answer["timed_out"])
