"""What IMAP tells of Inbox is looked at by itself: that costs what changed, not what is there."""

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
from tests.providers.accounts.conftest import Desk, open_desk
from tests.providers.accounts.test_every_provider import outgoing_mail
from tests.providers.accounts.worlds import World, open_world
from tests.servers.proxy import Proxy, proxied

FEW, MANY = 5, 200
LOOKS = 3


@dataclass
class Listening:
    """An account that listens, and what passes between it and its server."""

    desk: Desk
    world: World
    proxy: Proxy
    provider: Any
    one: SyncPass

    async def told(self, happens: Callable[[], None]) -> bool:
        """Look at the account once the server has told of something; whether it was at all."""
        waiting = asyncio.create_task(self.provider.wait())
        await asyncio.wait([waiting], timeout=0.3)
        happens()
        async with asyncio.timeout(60):
            await waiting
        self.proxy.reset()
        return await self.one.run()

    @property
    def passed(self) -> tuple[int, int]:
        return self.proxy.round_trips, self.proxy.bytes_from_server


@asynccontextmanager
async def listening(folder: Path, kind: str, count: int) -> AsyncIterator[Listening]:
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file"}
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(open_world(kind))
        proxy = await stack.enter_async_context(proxied(world.arguments["port"]))
        app = await stack.enter_async_context(open_app(read_settings(values).settings))
        world.arguments["port"] = proxy.port
        for number in range(count):
            world.deliver(outgoing_mail(f"Old {number}"))
        desk = await open_desk(app, world)
        provider = await stack.enter_async_context(app.services.providers.open(desk.account))
        one = SyncPass(app.services, desk.account, provider)
        await one.begin()
        assert await one.run()
        yield Listening(desk, world, proxy, provider, one)


async def received(desk: Desk) -> int:
    events = await desk.app.services.store.events_after(0, limit=1_000, visible=EVERYTHING)
    return sum(event.type == "message.received" for event in events)


@pytest.fixture(autouse=True)
def _nothing_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imap_account, "POLL_S", 3_600)
    monkeypatch.setattr(imap_client, "IDLE_S", 3_600)
    monkeypatch.setattr(imap_reading, "FULL_PASS_S", 3_600)


@pytest.mark.parametrize("kind", ["imap", "imap-plain"])
async def test_a_mail_and_a_flag_cost_the_same_in_a_large_mailbox(
    tmp_path: Path, kind: str
) -> None:
    passed: dict[int, list[tuple[int, int]]] = {}
    for count in (FEW, MANY):
        async with listening(tmp_path / str(count), kind, count) as ear:
            assert not await ear.told(lambda e=ear: e.world.deliver(outgoing_mail("News")))  # type: ignore[misc]
            passed[count] = [ear.passed]
            assert not await ear.told(lambda e=ear: e.world.flag("News"))  # type: ignore[misc]
            passed[count].append(ear.passed)

            assert ("flagged",) == (await ear.desk.message("News")).flags
            account = await ear.desk.app.services.store.account("work", EVERYTHING)
            assert account is not None
            assert count + 1 == account.synced
            assert "News" == (await ear.desk.news())[-1]

    for (few_trips, few_bytes), (trips, size) in zip(passed[FEW], passed[MANY], strict=True):
        assert few_trips == trips
        assert size < few_bytes + 100


@pytest.mark.parametrize("kind", ["imap", "imap-plain"])
async def test_what_leaves_inbox_is_looked_for_everywhere(tmp_path: Path, kind: str) -> None:
    async with listening(tmp_path, kind, FEW) as ear:
        before = await ear.desk.message("Old 1")
        assert await ear.told(lambda: ear.world.archive("Old 1"))
        assert await ear.told(lambda: ear.world.remove("Old 2"))

        after = await ear.desk.message("Old 1")
        assert (before.id, ("Archive",)) == (after.id, after.mailboxes)
        assert {f"Old {n}" for n in (0, 1, 3, 4)} == {r.subject for r in await ear.desk.rows()}
        assert FEW - 1 == await received(ear.desk)


async def test_other_mailboxes_are_looked_at_when_it_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(tmp_path, "imap", FEW) as ear:
        ear.world.archive("Old 1")
        await ear.one.run()
        ear.world.flag("Old 1")
        assert not await ear.told(lambda: ear.world.deliver(outgoing_mail("News")))
        early = await ear.desk.message("Old 1")
        monkeypatch.setattr(ear.provider._reader, "_next_full_pass", 0.0)
        assert await ear.told(lambda: ear.world.deliver(outgoing_mail("More news")))
        late = await ear.desk.message("Old 1")

    assert ((), ("flagged",)) == (early.flags, late.flags)


@pytest.mark.parametrize("is_requested", [False, True])
async def test_who_asks_for_an_account_gets_a_look_at_all_of_it(
    tmp_path: Path, *, is_requested: bool
) -> None:
    async with listening(tmp_path, "imap", FEW) as ear:
        waiting = asyncio.create_task(ear.provider.wait())
        await asyncio.wait([waiting], timeout=0.3)
        ear.world.deliver(outgoing_mail("News"))
        await waiting
        await SyncScheduler(ear.desk.app.services)._run_pass(ear.one, is_requested=is_requested)

        account = await ear.desk.app.services.store.account("work", EVERYTHING)
        assert account is not None
        assert (FEW + 1, is_requested) == (account.synced, account.synced_at is not None)


async def test_what_happens_while_nobody_listens_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imap_account, "POLL_S", 0.0)
    async with listening(tmp_path, "imap", FEW) as ear:
        for number in range(LOOKS):
            waiting = asyncio.create_task(ear.provider.wait())
            await asyncio.wait([waiting], timeout=0.3)
            ear.proxy.cut_all()
            ear.world.deliver(outgoing_mail(f"News {number}"))
            ear.world.flag(f"Old {number}")
            await waiting
            with suppress(ProviderError):
                await ear.one.run()
            await ear.one.run()
        assert not await ear.told(lambda: ear.world.deliver(outgoing_mail("The last news")))

        flagged = {row.subject for row in await ear.desk.rows() if "flagged" in row.flags}
        assert {f"Old {number}" for number in range(LOOKS)} == flagged
        assert FEW + LOOKS + 1 == len(await ear.desk.rows())
