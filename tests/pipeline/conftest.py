"""A test clock, and installations with an outbox or webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.app import App, open_app
from postroom.calls.context import RequestContext
from postroom.config import read_settings
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER
from postroom.providers.allowed_hosts import AddressGuard
from postroom.providers.http_clients import HttpWebhookClient
from tests.mails import new_inbox
from tests.pipeline.clock import Clock
from tests.pipeline.webhook_receiver import LOOPBACK, WebhookReceiver, receiving


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def outbox_ctx(tmp_path: Path, clock: Clock) -> AsyncIterator[RequestContext]:
    """The context of an installation with an inbox and a clock, whose relay a test chooses."""
    settings = read_settings(
        {"POSTROOM_DATA_DIR": str(tmp_path / "data"), "POSTROOM_RELAY_URL": "smtp://127.0.0.1:9"}
    ).settings
    async with open_app(settings) as app:
        ctx = replace(app, services=replace(app.services, clock=clock)).context(OWNER)
        await new_inbox(ctx, "me")
        yield ctx


@pytest.fixture
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
def open_ctx(app: App, clock: Clock) -> RequestContext:
    """The context of an installation that may call webhooks on this machine."""
    services = replace(
        app.services,
        webhook_client=HttpWebhookClient(AddressGuard(LOOPBACK), timeout_s=60),
        clock=clock,
    )
    return replace(app, services=services).context(OWNER)


@pytest.fixture
async def inbox(open_ctx: RequestContext) -> Inbox:
    return await new_inbox(open_ctx)
