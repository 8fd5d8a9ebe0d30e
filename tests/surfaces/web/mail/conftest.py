"""Delivered mail, and users who read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from postroom.model.inbox import Inbox
from tests.mails import deliver, mail
from tests.surfaces.web.conftest import WebInstallation, WebUser

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8ff"
    "ff3f0005fe02fea7d0d1c80000000049454e44ae426082"
)
"""A picture of one pixel."""


class IncomingMail:
    """Delivers mail to an inbox."""

    def __init__(self, installation: WebInstallation) -> None:
        self.installation = installation

    async def inbox(self, username: str = "me") -> Inbox:
        address = f"{username}@postroom.localhost"
        return (await self.installation.app.services.store.inboxes_at([address]))[address]

    async def arrive(self, *args: Any, username: str = "me", **more: Any) -> str:
        """Deliver a mail; returns its id."""
        inbox = await self.inbox(username)
        raw = mail(*args, to=inbox.address, **more)
        return await self.arrive_raw(raw, username=username)

    async def arrive_raw(self, raw: bytes, *, username: str = "me") -> str:
        added = await deliver(self.installation.app.services, await self.inbox(username), raw)
        return added.message_id


@pytest.fixture
def incoming(installation: WebInstallation) -> IncomingMail:
    return IncomingMail(installation)


@pytest.fixture
async def reader(installation: WebInstallation) -> AsyncIterator[WebUser]:
    """A user whose key may only read."""
    async with installation.new_user() as person:
        await person.sign_in(key=await installation.key("read"))
        yield person
