"""Servers that omit existing mail from listings: nothing is missed, and nothing is deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.errors import ProviderError
from tests.providers.accounts.conftest import SyncedAccount, add_synced_account
from tests.servers.imap_script import ScriptedImap, mails, scripted

NOTHING = b"* SEARCH\r\n{tag} OK done\r\n"
CAPABILITIES = "IMAP4rev1 UIDPLUS"


@asynccontextmanager
async def at(server: ScriptedImap, folder: Path) -> AsyncIterator[SyncedAccount]:
    values = {"POSTROOM_DATA_DIR": str(folder), "POSTROOM_SECRETS": "file"}
    account: dict[str, Any] = {
        "provider": "imap",
        "address": "alice@example.com",
        "password": "secret",
        "host": "127.0.0.1",
        "port": server.port,
        "security": "none",
        "insecure": True,
    }
    async with open_app(read_settings(values).settings) as app:
        remote: Any = type("Remote", (), {"arguments": account})
        yield await add_synced_account(app, remote)


async def test_a_first_sync_reads_mail_that_searches_omit(tmp_path: Path) -> None:
    boxes = {b"INBOX": mails(5)}
    replies = {"UID SEARCH": NOTHING}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        first = len(await synced.rows())
        boxes[b"INBOX"] |= {6: mails(6)[6]}
        await synced.sync()

        assert (5, 6) == (first, len(await synced.rows()))


async def test_an_empty_listing_deletes_nothing(tmp_path: Path) -> None:
    boxes = {b"INBOX": mails(5)}
    replies: dict[str, bytes] = {}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        replies |= {"UID SEARCH": NOTHING, "FETCH": b"{tag} OK nothing\r\n"}
        with pytest.raises(ProviderError, match="lists none"):
            await synced.sync()
        replies.clear()
        await synced.sync()

        assert 5 == len(await synced.rows())


async def test_an_inaccessible_mailbox_deletes_nothing(tmp_path: Path) -> None:
    boxes = {b"INBOX": mails(2), b"Work": mails(4)}
    replies: dict[str, Any] = {}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as synced,
    ):
        await synced.sync()
        before = len(await synced.rows())
        replies["STATUS"] = b"{tag} NO [NOPERM] not for you\r\n"
        await synced.sync()
        closed = len(await synced.rows())
        replies.clear()
        boxes[b"Work"] |= {9: mails(9)[9]}
        await synced.sync()

        assert (4, 4, 5) == (before, closed, len(await synced.rows()))
