"""During a long first sync pass, new mail and local changes are synced without delay."""

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
from tests.providers.accounts.conftest import AS_ROOT, SyncedAccount, add_synced_account, needs_root
from tests.providers.accounts.remote_mailboxes import RemoteMailbox, open_remote
from tests.providers.accounts.test_every_provider import outgoing_mail

COUNT = 12
AT_ONCE = 4


class InterruptedProvider:
    """A provider that calls a function after each batch of its changes."""

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
) -> AsyncIterator[tuple[SyncedAccount, RemoteMailbox]]:
    """An account with old mail that is read in small batches."""
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
        remote = await stack.enter_async_context(open_remote(kind))
        settings = read_settings({**values, **remote.settings}).settings
        app = await stack.enter_async_context(open_app(settings))
        for number in range(COUNT):
            remote.deliver(outgoing_mail(f"Old {number:02}"))
        yield await add_synced_account(app, remote), remote


async def run_pass(synced: SyncedAccount, happens: Callable[[int], Awaitable[None]]) -> None:
    async with synced.app.services.providers.open(synced.account) as provider:
        one = SyncPass(synced.app.services, synced.account, InterruptedProvider(provider, happens))
        await one.begin()
        await one.run()


async def in_order(synced: SyncedAccount) -> list[str]:
    """The subjects in the order in which they were stored."""
    events = await synced.app.services.store.events_after(0, limit=1_000, visible=EVERYTHING)
    return [str(e.data["subject"]) for e in events if e.type == "message.received"]


KINDS = ("imap", "imap-plain", "gmail", "outlook", pytest.param("fastmail", marks=AS_ROOT))


@pytest.mark.parametrize("kind", KINDS)
async def test_new_mail_is_stored_during_a_first_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with long_mailbox(tmp_path, monkeypatch, kind) as (synced, remote):

        async def happens(number: int) -> None:
            if number in (1, 3):
                remote.deliver(outgoing_mail(f"New {number}"))

        await run_pass(synced, happens)
        first = await in_order(synced)
        await synced.sync()

        assert AT_ONCE == first.index("New 1")
        assert first.index("New 1") < first.index("New 3") < COUNT + 1
        assert COUNT + 2 == len(first)
        assert first == await in_order(synced)
        assert COUNT + 2 == len(await synced.rows())


async def test_new_mail_comes_first_when_an_interrupted_sync_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with long_mailbox(tmp_path, monkeypatch, "imap") as (synced, remote):

        async def is_cut(number: int) -> None:
            if number == 2:
                raise ProviderError("the connection is gone")

        async def nothing(_: int) -> None: ...

        with pytest.raises(ProviderError):
            await run_pass(synced, is_cut)
        remote.deliver(outgoing_mail("New"))
        await run_pass(synced, nothing)

        stored = await in_order(synced)
        assert "New" in stored[AT_ONCE : 2 * AT_ONCE + 1]
        assert COUNT + 1 == len(stored)


@pytest.mark.parametrize("kind", ["imap", "imap-plain"])
async def test_a_local_change_is_pushed_during_a_first_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with long_mailbox(tmp_path, monkeypatch, kind) as (synced, remote):
        seen = []

        async def happens(number: int) -> None:
            rows = {row.subject: row for row in await synced.rows()}
            if number == 2:
                change = Change(flags=("flagged",), move_to="Archive")
                await synced.app.services.store.change_messages(
                    [rows["Old 11"].id], change, EVERYTHING
                )
            elif number == 3:
                seen.append(remote.find("Old 11"))

        await run_pass(synced, happens)
        await synced.sync()
        await synced.sync()

        (there,) = seen
        assert there is not None
        assert ({"flagged"}, "Archive") == (there.flags, there.mailbox)
        here = await synced.message("Old 11")
        assert (("flagged",), ("Archive",)) == (here.flags, here.mailboxes)
        assert COUNT == len(await synced.rows())
