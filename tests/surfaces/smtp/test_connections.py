"""SMTP connections that do not complete are closed after a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from postroom.app import App
from postroom.model.inbox import Inbox
from postroom.surfaces import connections
from postroom.surfaces.smtp import server
from postroom.surfaces.smtp.server import Session, listening
from tests.surfaces.smtp.conftest import Client, connect


@asynccontextmanager
async def client_with_timeouts(
    app: App, monkeypatch: pytest.MonkeyPatch, **limits: float
) -> AsyncIterator[Client]:
    """A client of a listener with short timeouts."""
    monkeypatch.setattr(server, "Session", partial(Session, **limits))
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    async with listening(replace(app, settings=settings)) as listener:
        assert listener is not None
        client = await connect(listener)
        yield client
        client.writer.close()


async def drip(client: Client) -> bytes:
    """Send single bytes until there is a reply."""
    heard = asyncio.create_task(client.reply())
    while not (await asyncio.wait([heard], timeout=0.001))[0]:
        client.writer.write(b"x")
    return heard.result()


async def test_an_incomplete_command_times_out(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_with_timeouts(app, monkeypatch, idle_s=0.2) as client:
        await client.reply()

        assert b"421 4.4.2" == (await drip(client))[:9]


async def test_an_incomplete_mail_times_out(
    app: App, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_with_timeouts(app, monkeypatch, mail_s=0.2) as client:
        await client.begin(inbox.address)

        assert b"421 4.4.2" == (await drip(client))[:9]


async def test_a_connection_over_the_limit_is_refused(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_SMTP", 2)
    settings = replace(app.settings, smtp_listen="127.0.0.1:0")
    async with listening(replace(app, settings=settings)) as listener:
        assert listener is not None
        clients = [await connect(listener) for _ in range(3)]
        greetings = [(await client.reply())[:3] for client in clients]
        still = await clients[0].say(b"NOOP")
        for client in clients:
            client.writer.close()

    assert [b"220", b"220", b"421"] == greetings
    assert b"250" == still[:3]
