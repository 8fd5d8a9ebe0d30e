"""Whatever interrupts a pass, the next one goes on: nothing is lost, doubled or told again."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
from pathlib import Path

import pytest

from postroom.app import App, open_app
from postroom.config import read_settings
from postroom.errors import ProviderError
from postroom.model.key import OWNER
from postroom.model.stored import Change, MessageQuery
from postroom.operations.accounts import add_account
from postroom.operations.operation import call
from postroom.pipeline import sync
from postroom.pipeline.syncing import sync_once
from tests.mails import mail
from tests.providers.accounts.worlds import ADDRESS, open_world
from tests.servers.postroom import command, environment
from tests.servers.proxy import proxied

COUNT = 30


async def subjects(app: App) -> list[str]:
    found = await app.house.store.messages(MessageQuery(mailbox="*"))
    assert found.total <= COUNT
    return sorted(row.subject for row in found.rows)


def values(folder: Path) -> dict[str, str]:
    return {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file"}


async def test_a_connection_that_is_cut_anywhere_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "BATCH_MAILS", 4)
    async with (
        open_world("imap") as world,
        proxied(world.arguments["port"]) as proxy,
        open_app(read_settings(values(tmp_path)).settings) as app,
    ):
        wanted = sorted(f"Letter {number}" for number in range(COUNT))
        for subject in wanted:
            world.deliver(mail(subject, secrets.token_hex(1500), to=ADDRESS))
        arguments = {**world.arguments, "account_id": "work", "port": proxy.port}
        account = await call(app.context(OWNER), add_account, arguments)
        cuts = 0
        for after in range(6_000, 60_000, 1_700):
            proxy.cut_after, proxy.cuts = after, 1
            try:
                await sync_once(app.house, account)
            except ProviderError:
                cuts += 1
        proxy.cut_after = None
        await sync_once(app.house, account)

        assert cuts > 3
        assert wanted == await subjects(app)
        assert not await app.house.store.problems()
        page = await app.house.store.events_after(0, limit=1000)
        assert COUNT == len([event for event in page if event.type == "message.received"])


async def test_a_process_that_is_killed_is_taken_over_from(tmp_path: Path) -> None:
    async with open_world("imap") as world:
        wanted = sorted(f"Letter {number}" for number in range(COUNT))
        for subject in wanted:
            world.deliver(mail(subject, to=ADDRESS))
        settings = read_settings(values(tmp_path / "data")).settings
        async with open_app(settings) as app:
            arguments = {**world.arguments, "account_id": "work"}
            await call(app.context(OWNER), add_account, arguments)
        env = environment(tmp_path / "data", values(tmp_path / "data"))
        process = subprocess.Popen(  # noqa: ASYNC220
            command("account", "sync", "work"), env=env, stdout=subprocess.DEVNULL
        )
        async with open_app(settings) as app:
            while process.poll() is None and not await subjects(app):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            account = await app.house.store.account("work", None)
            assert account is not None
            await app.house.store.release("sync:work", await holder(app))
            assert await sync_once(app.house, account)

            assert wanted == await subjects(app)
            assert not await app.house.store.problems()


async def holder(app: App) -> str:
    """Who had the lease when it was killed; nobody waits for it to end here."""
    engine = app.house.store._engine  # type: ignore[attr-defined]
    row = await engine.read(lambda tx: tx.one("SELECT holder FROM leases WHERE name = 'sync:work'"))
    return str(row[0]) if row else ""


async def test_a_change_for_a_message_of_another_uidvalidity_touches_nothing(
    tmp_path: Path,
) -> None:
    async with (
        open_world("imap") as world,
        open_app(read_settings(values(tmp_path)).settings) as app,
    ):
        world.deliver(mail("First", to=ADDRESS))
        world.deliver(mail("Second", to=ADDRESS))
        arguments = {**world.arguments, "account_id": "work"}
        account = await call(app.context(OWNER), add_account, arguments)
        await sync_once(app.house, account)
        found = await app.house.store.messages(MessageQuery(q="first"))
        await app.house.store.change_messages(
            [found.rows[0].id], Change(flags=("flagged",), move_to="Trash"), None
        )
        world.remove("First")
        world.expire()
        await sync_once(app.house, account)
        await sync_once(app.house, account)

        second = world.find("Second")
        assert second is not None
        assert ("Inbox", frozenset()) == (second.mailbox, second.flags)
