"""An installation with one account at a provider."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App, open_app
from postroom.calls.operation import call
from postroom.config import read_settings
from postroom.model.account import Account
from postroom.model.key import OWNER
from postroom.model.mail.message import Message, MessageRow
from postroom.model.mail.storage import MessageQuery
from postroom.model.view import EVERYTHING
from postroom.operations.accounts import add_account
from postroom.pipeline.sync import sync_once
from tests.providers.accounts.remote_mailboxes import PROXIED, RemoteMailbox, open_remote

AS_ROOT = pytest.mark.may_skip("Cyrus starts only as root")
KINDS = ("imap", "imap-plain", pytest.param("fastmail", marks=AS_ROOT), "gmail", "outlook")


def needs_root() -> None:
    """Skip a test with Cyrus if it does not run as root."""
    if os.getuid() != 0:
        pytest.skip("Cyrus starts only as root")


@pytest.fixture(params=KINDS)
async def remote(request: pytest.FixtureRequest) -> AsyncIterator[RemoteMailbox]:
    """Every provider passes the same suite."""
    if request.param in ("fastmail", PROXIED):
        needs_root()
    async with open_remote(request.param) as opened:
        yield opened


@dataclass
class SyncedAccount:
    """An installation, and the account in it."""

    app: App
    account: Account

    async def sync(self) -> None:
        account = await self.app.services.store.account(self.account.id, EVERYTHING)
        assert account is not None
        assert await sync_once(self.app.services, account)

    async def rows(self, mailbox: str | None = "*", **query: Any) -> list[MessageRow]:
        found = await self.app.services.store.messages(
            MessageQuery(visible=EVERYTHING, mailbox=mailbox, **query)
        )
        return list(found.rows)

    async def message(self, subject: str) -> Message:
        row = next(r for r in await self.rows() if r.subject == subject)
        message = await self.app.services.store.message(row.id, EVERYTHING)
        assert message is not None
        return message

    async def received(self) -> list[str]:
        """The subjects of new mail, not imported, in the order of the events."""
        events = await self.app.services.store.events_after(0, limit=10_000, visible=EVERYTHING)
        return [
            str(e.data["subject"])
            for e in events
            if e.type == "message.received" and not e.data.get("imported")
        ]


async def add_synced_account(
    app: App, remote: RemoteMailbox, account_id: str = "work"
) -> SyncedAccount:
    """Add the account of a remote mailbox to an installation."""
    arguments = {"account_id": account_id, **remote.arguments}
    account = await call(app.context(OWNER), add_account, arguments)
    return SyncedAccount(app, account)


@pytest.fixture
async def services(tmp_path: Path, remote: RemoteMailbox) -> AsyncIterator[App]:
    values = {
        "POSTROOM_DATA_DIR": str(tmp_path / "data"),
        "POSTROOM_SECRETS": "file",
        **remote.settings,
    }
    async with open_app(read_settings(values).settings) as app:
        yield app


@pytest.fixture
async def synced(services: App, remote: RemoteMailbox) -> SyncedAccount:
    return await add_synced_account(services, remote)
