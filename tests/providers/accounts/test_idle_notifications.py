"""IDLE notifications of Inbox: the cost of a sync depends on the changes, not on the mailbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.errors import ProviderError
from postroom.model.view import EVERYTHING
from postroom.pipeline.sync import SyncPass, SyncScheduler
from postroom.providers.imap import changes as imap_reading
from postroom.providers.imap import client as imap_client
from postroom.providers.imap import provider as imap_account
from tests.providers.accounts.conftest import SyncedAccount, add_synced_account
from tests.providers.accounts.remote_mailboxes import RemoteMailbox, open_remote
from tests.providers.accounts.test_every_provider import outgoing_mail
from tests.servers.proxy import Proxy, proxied

FEW, MANY = 5, 200
LOOKS = 3


@dataclass
class ListeningAccount:
    """An account with IDLE, and a proxy that counts its traffic."""

    synced: SyncedAccount
    remote: RemoteMailbox
    proxy: Proxy
    provider: Any
    one: SyncPass

    async def sync_after(self, change: Callable[[], None]) -> bool:
        """Cause a change and sync after its notification; returns whether the pass was made."""
        waiting = asyncio.create_task(self.provider.wait())
        await asyncio.wait([waiting], timeout=0.3)
        change()
        async with asyncio.timeout(60):
            await waiting
        self.proxy.reset()
        return await self.one.run()

    @property
    def traffic(self) -> tuple[int, int]:
        return self.proxy.round_trips, self.proxy.bytes_from_server


@asynccontextmanager
async def listening(folder: Path, kind: str, count: int) -> AsyncIterator[ListeningAccount]:
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file"}
    async with AsyncExitStack() as stack:
        remote = await stack.enter_async_context(open_remote(kind))
        proxy = await stack.enter_async_context(proxied(remote.arguments["port"]))
        app = await stack.enter_async_context(open_app(read_settings(values).settings))
        remote.arguments["port"] = proxy.port
        for number in range(count):
            remote.deliver(outgoing_mail(f"Old {number}"))
        synced = await add_synced_account(app, remote)
        provider = await stack.enter_async_context(app.services.providers.open(synced.account))
        one = SyncPass(app.services, synced.account, provider)
        await one.begin()
        assert await one.run()
        yield ListeningAccount(synced, remote, proxy, provider, one)


async def received(synced: SyncedAccount) -> int:
    events = await synced.app.services.store.events_after(0, limit=1_000, visible=EVERYTHING)
    return sum(event.type == "message.received" for event in events)


@pytest.fixture(autouse=True)
def _no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imap_account, "POLL_S", 3_600)
    monkeypatch.setattr(imap_client, "IDLE_S", 3_600)
    monkeypatch.setattr(imap_reading, "FULL_PASS_S", 3_600)


@pytest.mark.parametrize("kind", ["imap", "imap-plain"])
async def test_a_mail_and_a_flag_have_the_same_cost_in_a_large_mailbox(
    tmp_path: Path, kind: str
) -> None:
    traffic: dict[int, list[tuple[int, int]]] = {}
    for count in (FEW, MANY):
        async with listening(tmp_path / str(count), kind, count) as listener:
            assert not await listener.sync_after(
                lambda e=listener: e.remote.deliver(outgoing_mail("News"))
            )  # type: ignore[misc]
            traffic[count] = [listener.traffic]
            assert not await listener.sync_after(lambda e=listener: e.remote.flag("News"))  # type: ignore[misc]
            traffic[count].append(listener.traffic)

            assert ("flagged",) == (await listener.synced.message("News")).flags
            account = await listener.synced.app.services.store.account("work", EVERYTHING)
            assert account is not None
            assert count + 1 == account.synced
            assert "News" == (await listener.synced.received())[-1]

    for (few_trips, few_bytes), (trips, size) in zip(traffic[FEW], traffic[MANY], strict=True):
        assert few_trips == trips
        assert size < few_bytes + 100


@pytest.mark.parametrize("kind", ["imap", "imap-plain"])
async def test_a_message_that_left_inbox_is_searched_in_all_mailboxes(
    tmp_path: Path, kind: str
) -> None:
    async with listening(tmp_path, kind, FEW) as listener:
        before = await listener.synced.message("Old 1")
        assert await listener.sync_after(lambda: listener.remote.archive("Old 1"))
        assert await listener.sync_after(lambda: listener.remote.remove("Old 2"))

        after = await listener.synced.message("Old 1")
        assert (before.id, ("Archive",)) == (after.id, after.mailboxes)
        assert {f"Old {n}" for n in (0, 1, 3, 4)} == {
            r.subject for r in await listener.synced.rows()
        }
        assert FEW - 1 == await received(listener.synced)


async def test_other_mailboxes_are_synced_periodically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(tmp_path, "imap", FEW) as listener:
        listener.remote.archive("Old 1")
        await listener.one.run()
        listener.remote.flag("Old 1")
        assert not await listener.sync_after(lambda: listener.remote.deliver(outgoing_mail("News")))
        early = await listener.synced.message("Old 1")
        monkeypatch.setattr(listener.provider._reader, "_next_full_pass", 0.0)
        assert await listener.sync_after(
            lambda: listener.remote.deliver(outgoing_mail("More news"))
        )
        late = await listener.synced.message("Old 1")

    assert ((), ("flagged",)) == (early.flags, late.flags)


@pytest.mark.parametrize("is_requested", [False, True])
async def test_a_requested_sync_covers_the_whole_account(
    tmp_path: Path, *, is_requested: bool
) -> None:
    async with listening(tmp_path, "imap", FEW) as listener:
        waiting = asyncio.create_task(listener.provider.wait())
        await asyncio.wait([waiting], timeout=0.3)
        listener.remote.deliver(outgoing_mail("News"))
        await waiting
        await SyncScheduler(listener.synced.app.services)._run_pass(
            listener.one, is_requested=is_requested
        )

        account = await listener.synced.app.services.store.account("work", EVERYTHING)
        assert account is not None
        assert (FEW + 1, is_requested) == (account.synced, account.synced_at is not None)


async def test_changes_without_a_listener_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imap_account, "POLL_S", 0.0)
    async with listening(tmp_path, "imap", FEW) as listener:
        for number in range(LOOKS):
            waiting = asyncio.create_task(listener.provider.wait())
            await asyncio.wait([waiting], timeout=0.3)
            listener.proxy.cut_all()
            listener.remote.deliver(outgoing_mail(f"News {number}"))
            listener.remote.flag(f"Old {number}")
            await waiting
            with suppress(ProviderError):
                await listener.one.run()
            await listener.one.run()
        assert not await listener.sync_after(
            lambda: listener.remote.deliver(outgoing_mail("The last news"))
        )

        flagged = {row.subject for row in await listener.synced.rows() if "flagged" in row.flags}
        assert {f"Old {number}" for number in range(LOOKS)} == flagged
        assert FEW + LOOKS + 1 == len(await listener.synced.rows())
