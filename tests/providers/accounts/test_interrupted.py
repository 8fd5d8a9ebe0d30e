"""After any interruption the next sync pass continues; nothing is lost, duplicated or repeated.

`SYNC_CUTS=2000 pytest tests/providers/accounts/test_interrupted.py` cuts the first sync at that
many offsets.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.errors import ProviderError
from postroom.model.account import Account
from postroom.model.key import OWNER
from postroom.model.mail.storage import Change, MessageQuery
from postroom.model.view import EVERYTHING
from postroom.operations.accounts import add_account, remove_account
from postroom.pipeline import pull
from postroom.pipeline.sync import sync_once
from tests.mails import mail
from tests.providers.accounts.remote_mailboxes import (
    ADDRESS,
    ImapRemote,
    RemoteMailbox,
    open_remote,
)
from tests.servers.postroom import command, environment
from tests.servers.proxy import Proxy, proxied

COUNT = 30
CUTS = int(os.environ.get("SYNC_CUTS", "6"))


async def subjects(app: App) -> list[str]:
    found = await app.services.store.messages(MessageQuery(visible=EVERYTHING, mailbox="*"))
    assert found.total <= COUNT
    return sorted(row.subject for row in found.rows)


def values(folder: Path) -> dict[str, str]:
    return {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file"}


async def test_a_broken_connection_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "BATCH_MAILS", 4)
    async with (
        open_remote("imap") as remote,
        proxied(remote.arguments["port"]) as proxy,
        open_app(read_settings(values(tmp_path)).settings) as app,
    ):
        wanted = sorted(f"Letter {number}" for number in range(COUNT))
        for subject in wanted:
            remote.deliver(mail(subject, secrets.token_hex(1500), to=ADDRESS))
        arguments = {**remote.arguments, "account_id": "work", "port": proxy.port}
        account = await call(app.context(OWNER), add_account, arguments)
        cuts = 0
        for after in range(6_000, 60_000, 1_700):
            proxy.cut_after, proxy.cuts = after, 3
            with suppress(ProviderError):
                await sync_once(app.services, account)
            cuts += 3 - proxy.cuts
        proxy.cut_after = None
        await sync_once(app.services, account)

        assert cuts > 3
        assert wanted == await subjects(app)
        assert not await app.services.store.problems()
        page = await app.services.store.events_after(0, limit=1000, visible=EVERYTHING)
        assert COUNT == len([event for event in page if event.type == "message.received"])


async def test_a_first_sync_cut_at_any_offset_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cut is made in a separate first sync of 50 mails."""
    monkeypatch.setattr(pull, "BATCH_MAILS", 10)
    async with (
        open_remote("imap-plain") as remote,
        proxied(remote.arguments["port"]) as proxy,
        open_app(read_settings(values(tmp_path)).settings) as app,
    ):
        for number in range(50):
            remote.deliver(mail(f"Letter {number}", secrets.token_hex(200), to=ADDRESS))
        size = await bytes_of_a_pass(app, remote, proxy)
        cuts = 0
        for offset in range(1_500, size, max(1, size // CUTS)):
            account = await added(app, remote, proxy)
            proxy.cut_after, proxy.cuts = offset, 1
            with suppress(ProviderError):
                await sync_once(app.services, account)
            cuts += proxy.cuts == 0
            proxy.cut_after = None
            await sync_once(app.services, account)

            found = await app.services.store.messages(
                MessageQuery(visible=EVERYTHING, inbox_id=account.inbox_id)
            )
            assert (50, 50) == (found.total, await received(app)), offset
            await call(app.context(OWNER), remove_account, {"account_id": account.id})

    assert cuts >= CUTS * 0.9


async def bytes_of_a_pass(app: App, remote: RemoteMailbox, proxy: Proxy) -> int:
    account = await added(app, remote, proxy)
    proxy.reset()
    await sync_once(app.services, account)
    await call(app.context(OWNER), remove_account, {"account_id": account.id})
    return proxy.bytes_from_server - 500


async def added(app: App, remote: RemoteMailbox, proxy: Proxy) -> Account:
    arguments = {**remote.arguments, "account_id": "work", "port": proxy.port}
    account: Account = await call(app.context(OWNER), add_account, arguments)
    return account


async def received(app: App) -> int:
    events = await app.services.store.events_after(0, limit=10_000, visible=EVERYTHING)
    return sum(event.type == "message.received" for event in events)


async def test_a_killed_process_is_replaced_by_another(tmp_path: Path) -> None:
    async with open_remote("imap") as remote:
        wanted = sorted(f"Letter {number}" for number in range(COUNT))
        for subject in wanted:
            remote.deliver(mail(subject, to=ADDRESS))
        settings = read_settings(values(tmp_path / "data")).settings
        async with open_app(settings) as app:
            arguments = {**remote.arguments, "account_id": "work"}
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
            account = await app.services.store.account("work", EVERYTHING)
            assert account is not None
            await app.services.store.release("sync:work", await holder(app))
            assert await sync_once(app.services, account)

            assert wanted == await subjects(app)
            assert not await app.services.store.problems()


async def holder(app: App) -> str:
    """The holder of the lease when it was killed; the test does not wait for its expiry."""
    engine = app.services.store.engine  # type: ignore[attr-defined]
    row = await engine.read(lambda tx: tx.one("SELECT holder FROM leases WHERE name = 'sync:work'"))
    return str(row[0]) if row else ""


async def test_a_change_for_another_uidvalidity_is_not_applied(
    tmp_path: Path,
) -> None:
    async with (
        open_remote("imap") as remote,
        open_app(read_settings(values(tmp_path)).settings) as app,
    ):
        remote.deliver(mail("First", to=ADDRESS))
        remote.deliver(mail("Second", to=ADDRESS))
        arguments = {**remote.arguments, "account_id": "work"}
        account = await call(app.context(OWNER), add_account, arguments)
        await sync_once(app.services, account)
        found = await app.services.store.messages(MessageQuery(visible=EVERYTHING, q="first"))
        await app.services.store.change_messages(
            [found.rows[0].id], Change(flags=("flagged",), move_to="Trash"), EVERYTHING
        )
        remote.remove("First")
        remote.expire()
        await sync_once(app.services, account)
        await sync_once(app.services, account)

        second = remote.find("Second")
        assert second is not None
        assert ("Inbox", frozenset()) == (second.mailbox, second.flags)


@pytest.mark.parametrize("kind", ["imap", "imap-plain"])
async def test_a_renamed_or_recreated_mailbox_keeps_its_messages(tmp_path: Path, kind: str) -> None:
    async with (
        open_remote(kind) as remote,
        open_app(read_settings(values(tmp_path)).settings) as app,
    ):
        assert isinstance(remote, ImapRemote)
        for subject in ("First", "Second"):
            remote.deliver(mail(subject, to=ADDRESS))
        remote.imap.create("Work")
        remote.imap.select("INBOX")
        assert "OK" == remote.imap.copy("1:2", "Work")[0]
        remote.imap.store("1:2", "+FLAGS", r"(\Deleted)")
        remote.imap.expunge()
        account = await call(
            app.context(OWNER), add_account, {**remote.arguments, "account_id": "work"}
        )
        await sync_once(app.services, account)
        before = await places(app)
        remote.imap.rename("Work", "Plans")
        await sync_once(app.services, account)
        renamed = await places(app)
        remote.imap.create("Work")
        remote.imap.select("Plans")
        assert "OK" == remote.imap.copy("1:*", "Work")[0]
        remote.imap.close()
        remote.imap.delete("Plans")
        await sync_once(app.services, account)
        again = await places(app)

        assert {"Work"} == set(before.values()) == set(again.values())
        assert {"Plans"} == set(renamed.values())
        assert before.keys() == renamed.keys() == again.keys()
        assert 2 == await received(app)


async def places(app: App) -> dict[str, str]:
    found = await app.services.store.messages(MessageQuery(visible=EVERYTHING, mailbox="*"))
    return {row.id: row.mailboxes[0] for row in found.rows}
