"""An installation with a relay, an inbox with a correspondent, and keys under policies."""

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
from tests.pipeline.conftest import clock, post

__all__ = ["clock", "post"]

Keyed = Callable[..., Awaitable[RequestContext]]
KNOWN = "ana@example.com"
STRANGER = "mallory@evil.example"


@pytest.fixture
async def heard(post: RequestContext) -> str:
    """The id of a message from the correspondent, at a time that is long past."""
    inbox = (await post.store.inboxes_at(["me@postroom.localhost"]))["me@postroom.localhost"]
    return (await deliver(post, inbox, mail("Lunch?", sender=f"Ana <{KNOWN}>"))).message_id


@pytest.fixture
def keyed(post: RequestContext) -> Keyed:
    """The context of a new key."""

    async def make(**limits: Any) -> RequestContext:
        arguments = {"name": "agent", "scopes": ["read", "write", "send"], **limits}
        key = await call(post, create_key, arguments)
        return replace(post, caller=await authenticate(post, key.key))

    return make


def approver(app: App | RequestContext) -> RequestContext:
    """The person at the terminal."""
    assert isinstance(app, RequestContext)
    return replace(app, caller=OWNER)
