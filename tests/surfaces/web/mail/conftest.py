"""Mail in an office, and people who read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from postroom.model.inbox import Inbox
from tests.mails import deliver, mail
from tests.surfaces.web.conftest import Office, Person

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8ff"
    "ff3f0005fe02fea7d0d1c80000000049454e44ae426082"
)
"""A picture of one pixel."""


class Letters:
    """Puts mail into an inbox."""

    def __init__(self, office: Office) -> None:
        self.office = office

    async def inbox(self, username: str = "me") -> Inbox:
        address = f"{username}@postroom.localhost"
        return (await self.office.app.services.store.inboxes_at([address]))[address]

    async def arrive(self, *args: Any, username: str = "me", **more: Any) -> str:
        """The id of a mail that arrived."""
        inbox = await self.inbox(username)
        raw = mail(*args, to=inbox.address, **more)
        return await self.arrive_raw(raw, username=username)

    async def arrive_raw(self, raw: bytes, *, username: str = "me") -> str:
        added = await deliver(self.office.app.services, await self.inbox(username), raw)
        return added.message_id


@pytest.fixture
def letters(office: Office) -> Letters:
    return Letters(office)


@pytest.fixture
async def reader(office: Office) -> AsyncIterator[Person]:
    """Somebody whose key may read and nothing else."""
    async with office.visitor() as person:
        await person.sign_in(key=await office.key("read"))
        yield person
