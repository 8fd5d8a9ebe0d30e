"""An installation with a relay, an inbox with a correspondent, and keys with policies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from postroom.app import App
from postroom.calls.authentication import authenticate
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.key import OWNER
from postroom.operations.keys import create_key
from tests.mails import deliver, mail
from tests.pipeline.conftest import clock, outbox_ctx

__all__ = ["clock", "outbox_ctx"]

KeyFactory = Callable[..., Awaitable[RequestContext]]
KNOWN = "ana@example.com"
UNKNOWN = "mallory@evil.example"


@pytest.fixture
async def received(outbox_ctx: RequestContext) -> str:
    """The id of an old message from the correspondent."""
    inbox = (await outbox_ctx.store.inboxes_at(["me@postroom.localhost"]))["me@postroom.localhost"]
    return (await deliver(outbox_ctx, inbox, mail("Lunch?", sender=f"Ana <{KNOWN}>"))).message_id


@pytest.fixture
def new_key(outbox_ctx: RequestContext) -> KeyFactory:
    """Creates keys; returns their request contexts."""

    async def make(**limits: Any) -> RequestContext:
        arguments = {"name": "agent", "scopes": ["read", "write", "send"], **limits}
        key = await call(outbox_ctx, create_key, arguments)
        return replace(outbox_ctx, caller=await authenticate(outbox_ctx, key.key))

    return make


def approver(app: App | RequestContext) -> RequestContext:
    """The user at the terminal."""
    assert isinstance(app, RequestContext)
    return replace(app, caller=OWNER)
