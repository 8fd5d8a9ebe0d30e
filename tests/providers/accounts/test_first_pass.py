"""A first pass may take hours: new mail and changes made here do not wait for its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.errors import ProviderError
from postroom.model.account import RemoteChanges
from postroom.model.mail.storage import Change
from postroom.model.view import EVERYTHING
from postroom.pipeline.sync import SyncPass
from postroom.providers.imap import changes as imap_reading
from postroom.providers.web import gmail as gmail_provider
from postroom.providers.web import graph as graph_provider
from postroom.providers.web import graph_client
from postroom.providers.web import jmap as jmap_provider
from tests.providers.accounts.conftest import AS_ROOT, Desk, needs_root, open_desk
from tests.providers.accounts.test_every_provider import outgoing_mail
from tests.providers.accounts.worlds import World, open_world

COUNT = 12
AT_ONCE = 4


class Between:
    """A provider as it is, and something that happens after each part of its changes."""

    def __init__(self, provider: Any, happens: Callable[[int], Awaitable[None]]) -> None:
        self.provider, self.happens = provider, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    async def changes(self, *given: Any) -> AsyncGenerator[RemoteChanges, None]:
        number = 0
        async for part in self.provider.changes(*given):
            yield part
            number += 1
            await self.happens(number)


@asynccontextmanager
async def long_mailbox(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> AsyncIterator[tuple[Desk, World]]:
    """An account with old mail in it, which is read a few at a time."""
    monkeypatch.setattr(imap_reading, "PAGE", AT_ONCE)
    monkeypatch.setattr(imap_reading, "NEW_MAIL_S", 0.0)
    monkeypatch.setattr(jmap_provider, "PAGE", AT_ONCE)
    monkeypatch.setattr(gmail_provider, "_BATCH", AT_ONCE)
    monkeypatch.setattr(gmail_provider, "_NEW_MAIL_EVERY", 1)
    monkeypatch.setattr(graph_client, "_PAGE", AT_ONCE)
    monkeypatch.setattr(graph_provider, "NEW_MAIL_S", 0.0)
    if kind == "fastmail":
        needs_root()
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file"}
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(open_world(kind))
        settings = read_settings({**values, **world.settings}).settings
        app = await stack.enter_async_context(open_app(settings))
        for number in range(COUNT):
            world.deliver(outgoing_mail(f"Old {number:02}"))
        yield await open_desk(app, world), world


async def run_pass(desk: Desk, happens: Callable[[int], Awaitable[None]]) -> None:
    async with desk.app.services.providers.open(desk.account) as provider:
        one = SyncPass(desk.app.services, desk.account, Between(provider, happens))
        await one.begin()
        await one.run()


async def in_order(desk: Desk) -> list[str]:
    """What was stored, in the order in which it was."""
    events = await desk.app.services.store.events_after(0, limit=1_000, visible=EVERYTHING)
    return [str(e.data["subject"]) for e in events if e.type == "message.received"]


KINDS = ("imap", "imap-plain", "gmail", "outlook", pytest.param("fastmail", marks=AS_ROOT))


@pytest.mark.parametrize("kind", KINDS)
async def test_new_mail_does_not_wait_for_the_end_of_a_first_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with long_mailbox(tmp_path, monkeypatch, kind) as (desk, world):

        async def happens(number: int) -> None:
            if number in (1, 3):
                world.deliver(outgoing_mail(f"New {number}"))

        await run_pass(desk, happens)
        first = await in_order(desk)
        await desk.sync()

        assert AT_ONCE == first.index("New 1")
        assert first.index("New 1") < first.index("New 3") < COUNT + 1
        assert COUNT + 2 == len(first)
        assert first == await in_order(desk)
        assert COUNT + 2 == len(await desk.rows())


async def test_new_mail_comes_first_when_an_interrupted_pass_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with long_mailbox(tmp_path, monkeypatch, "imap") as (desk, world):

        async def is_cut(number: int) -> None:
            if number == 2:
                raise ProviderError("the connection is gone")

        async def nothing(_: int) -> None: ...

        with pytest.raises(ProviderError):
            await run_pass(desk, is_cut)
        world.deliver(outgoing_mail("New"))
        await run_pass(desk, nothing)

        stored = await in_order(desk)
        assert "New" in stored[AT_ONCE : 2 * AT_ONCE + 1]
        assert COUNT + 1 == len(stored)


@pytest.mark.parametrize("kind", ["imap", "imap-plain"])
async def test_a_change_here_does_not_wait_for_the_end_of_a_first_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with long_mailbox(tmp_path, monkeypatch, kind) as (desk, world):
        seen = []

        async def happens(number: int) -> None:
            rows = {row.subject: row for row in await desk.rows()}
            if number == 2:
                change = Change(flags=("flagged",), move_to="Archive")
                await desk.app.services.store.change_messages(
                    [rows["Old 11"].id], change, EVERYTHING
                )
            elif number == 3:
                seen.append(world.find("Old 11"))

        await run_pass(desk, happens)
        await desk.sync()
        await desk.sync()

        (there,) = seen
        assert there is not None
        assert ({"flagged"}, "Archive") == (there.flags, there.mailbox)
        here = await desk.message("Old 11")
        assert (("flagged",), ("Archive",)) == (here.flags, here.mailboxes)
        assert COUNT == len(await desk.rows())
