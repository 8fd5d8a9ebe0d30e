"""The event stream of open pages: its events, their visibility, and its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from postroom.calls import authentication
from postroom.calls.operation import call
from postroom.operations.keys import delete_key, list_keys
from tests.pipeline.clock import Clock
from tests.surfaces.web.conftest import WebInstallation, WebUser
from tests.surfaces.web.mail.conftest import IncomingMail, incoming

__all__ = ["incoming"]

IN_TIME_S = 10


class Stream:
    """The event stream of a page."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> dict[str, Any]:
        """The next event; empty if the stream has ended."""
        async with asyncio.timeout(IN_TIME_S):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "event":
                    return {"type": value}
                if name == "data":
                    return dict(json.loads(value))
        return {}


@asynccontextmanager
async def listening(person: WebUser, **headers: str) -> AsyncIterator[Stream]:
    async with person.http.stream("GET", "/live", headers=headers) as response:
        assert 200 == response.status_code
        assert "text/event-stream" == response.headers["content-type"]
        lines = response.aiter_lines()
        assert ": open" == await anext(lines)
        yield Stream(lines)


async def test_an_event_stream_holds_no_slot_of_the_concurrency_limit(
    installation: WebInstallation, owner: WebUser, incoming: IncomingMail
) -> None:
    async with listening(owner) as stream:
        message_id = await incoming.arrive("Soup")

        event = await stream.next()

        assert ("message.received", message_id) == (event["type"], event["message_id"])
        assert 0 == installation.app.concurrency_limit.running


async def test_a_page_that_reconnects_gets_the_missed_events(
    owner: WebUser, incoming: IncomingMail
) -> None:
    async with listening(owner) as stream:
        await incoming.arrive("One")
        seen = (await stream.next())["id"]
    missed = await incoming.arrive("Two")

    async with listening(owner, **{"Last-Event-ID": seen}) as stream:
        assert missed == (await stream.next())["message_id"]


async def test_a_page_gets_visible_events_only(
    installation: WebInstallation, incoming: IncomingMail
) -> None:
    other = await installation.new_inbox("other")
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read", inboxes=[other]))
        async with listening(person) as stream:
            await incoming.arrive("Secret", username="me")
            own = await incoming.arrive("Own", username="other")

            assert own == (await stream.next())["message_id"]


async def test_the_stream_ends_with_the_session(owner: WebUser) -> None:
    async with listening(owner) as stream:
        await owner.post("/signout")

        assert {"type": "end"} == await stream.next()
    assert 401 == (await owner.get("/live")).status_code


async def test_the_stream_ends_with_the_key(installation: WebInstallation) -> None:
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read"))
        [key] = [one for one in (await call(installation.owner, list_keys, {})).results
                 if one.name == "k"]  # fmt: skip
        async with listening(person) as stream:
            await call(installation.owner, delete_key, {"key_id": key.id})

            assert (await stream.next()).get("type") in (None, "end")


async def test_the_stream_ends_when_the_session_expires(
    owner: WebUser, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_SESSION_CHECK_S", 0.05)
    async with listening(owner) as stream:
        clock.now += timedelta(hours=13)

        assert {"type": "end"} == await stream.next()


async def test_a_session_without_read_gets_no_stream(
    installation: WebInstallation, anonymous: WebUser
) -> None:
    assert 401 == (await anonymous.get("/live")).status_code
    key = await installation.key("approve")
    context_of_key = {"Authorization": f"Bearer {await installation.key('read')}"}
    assert 401 == (await anonymous.get("/live", headers=context_of_key)).status_code
    await anonymous.sign_in(key=key)
    assert 403 == (await anonymous.get("/live")).status_code
    assert 'data-live="poll"' in await anonymous.read("/")


async def test_a_stream_supports_get_only(owner: WebUser) -> None:
    assert 404 == (await owner.post("/live")).status_code
    assert 200 == (await owner.http.head("/live")).status_code
    assert 404 == (await owner.get("/live/more")).status_code
