"""A clock that tests move, and houses that mail and webhooks leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.app import App, open_app
from postroom.config import read_settings
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER
from postroom.operations.context import Context
from postroom.providers.webhooks.guard import Guard
from postroom.providers.webhooks.poster import HttpPoster
from tests.mails import new_inbox
from tests.pipeline.clock import Clock
from tests.pipeline.receiver import LOOPBACK, Receiver


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def post(tmp_path: Path, clock: Clock) -> AsyncIterator[Context]:
    """A house with an inbox, a relay to be named, and a clock."""
    settings = read_settings(
        {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_RELAY_URL": "smtp://127.0.0.1:9"}
    ).settings
    async with open_app(settings) as app:
        ctx = replace(app, house=replace(app.house, clock=clock)).context(OWNER)
        await new_inbox(ctx, "me")
        yield ctx


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    yield receiver
    server.close()


@pytest.fixture
def open_ctx(app: App, clock: Clock) -> Context:
    """The house, which may speak to this machine."""
    house = replace(app.house, poster=HttpPoster(Guard(LOOPBACK), patience_s=2), clock=clock)
    return replace(app, house=house).context(OWNER)


@pytest.fixture
async def inbox(open_ctx: Context) -> Inbox:
    return await new_inbox(open_ctx)
