"""IMAP IDLE continues however often the connection ends.

`RECONNECTS=1000 pytest tests/providers/accounts/test_reconnects.py` is the long run.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.pipeline.sync import SyncPass
from postroom.ports.provider import SupportsPush
from postroom.providers.imap import provider as imap_account
from tests.providers.accounts.conftest import add_synced_account
from tests.providers.accounts.remote_mailboxes import RemoteMailbox, open_remote
from tests.providers.accounts.test_every_provider import outgoing_mail
from tests.servers.proxy import proxied

CUTS = int(os.environ.get("RECONNECTS", "20"))
ROOM = CUTS // 2


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_listening_survives_many_reconnects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imap_account, "POLL_S", 0.0)
    chance = random.Random(7)
    values = {"POSTROOM_DATA_DIR": str(tmp_path), "POSTROOM_SECRETS": "file"}
    async with (
        open_remote("imap") as remote,
        proxied(remote.arguments["port"]) as proxy,
        open_app(read_settings(values).settings) as app,
    ):
        remote.arguments["port"] = proxy.port
        synced = await add_synced_account(app, remote)
        async with app.services.providers.open(synced.account) as provider:
            assert isinstance(provider, SupportsPush)
            one = SyncPass(app.services, synced.account, provider)
            await one.begin()
            await one.run()
            await until_notified(remote, provider, "Before all")
            await one.run()
            before = descriptors(), len(asyncio.all_tasks())
            for _ in range(CUTS):
                waiting = asyncio.create_task(provider.wait())
                await asyncio.wait([waiting], timeout=chance.uniform(0, 0.15))
                async with asyncio.timeout(60):
                    while not waiting.done():
                        proxy.cut_all()
                        await asyncio.wait([waiting], timeout=0.05)
            await one.run()
            await until_notified(remote, provider, "After all")
            await one.run()

            assert {"Before all", "After all"} == {row.subject for row in await synced.rows()}
            # The store may have opened a connection meanwhile; a leak at every cut would be more.
            async with asyncio.timeout(60):
                while max(descriptors() - before[0], len(asyncio.all_tasks()) - before[1]) > ROOM:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def until_notified(remote: RemoteMailbox, provider: SupportsPush, subject: str) -> None:
    """Return when the provider reports an arriving mail."""
    waiting = asyncio.create_task(provider.wait())
    await asyncio.wait([waiting], timeout=0.2)
    remote.deliver(outgoing_mail(subject))
    await asyncio.wait_for(waiting, 60)
