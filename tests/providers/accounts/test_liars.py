"""Servers that say there is nothing although there is: nothing is missed, nothing removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.app import open_app
from postroom.config import read_settings
from postroom.errors import ProviderError
from tests.providers.accounts.conftest import Desk, open_desk
from tests.servers.imap_script import ScriptedImap, mails, scripted

NOTHING = b"* SEARCH\r\n{tag} OK done\r\n"
CAPABILITIES = "IMAP4rev1 UIDPLUS"


@asynccontextmanager
async def at(server: ScriptedImap, folder: Path) -> AsyncIterator[Desk]:
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
        world: Any = type("World", (), {"arguments": account})
        yield await open_desk(app, world)


async def test_a_first_pass_reads_what_a_search_does_not_find(tmp_path: Path) -> None:
    boxes = {b"INBOX": mails(5)}
    replies = {"UID SEARCH": NOTHING}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as desk,
    ):
        await desk.sync()
        first = len(await desk.rows())
        boxes[b"INBOX"] |= {6: mails(6)[6]}
        await desk.sync()

        assert (5, 6) == (first, len(await desk.rows()))


async def test_what_is_here_stays_when_a_server_lists_nothing(tmp_path: Path) -> None:
    boxes = {b"INBOX": mails(5)}
    replies: dict[str, bytes] = {}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as desk,
    ):
        await desk.sync()
        replies |= {"UID SEARCH": NOTHING, "FETCH": b"{tag} OK nothing\r\n"}
        with pytest.raises(ProviderError, match="lists none"):
            await desk.sync()
        replies.clear()
        await desk.sync()

        assert 5 == len(await desk.rows())


async def test_what_is_here_stays_when_a_mailbox_is_closed_to_us(tmp_path: Path) -> None:
    boxes = {b"INBOX": mails(2), b"Work": mails(4)}
    replies: dict[str, Any] = {}
    async with (
        scripted(mailboxes=boxes, capabilities=CAPABILITIES, replies=replies) as server,
        at(server, tmp_path) as desk,
    ):
        await desk.sync()
        before = len(await desk.rows())
        replies["STATUS"] = b"{tag} NO [NOPERM] not for you\r\n"
        await desk.sync()
        closed = len(await desk.rows())
        replies.clear()
        boxes[b"Work"] |= {9: mails(9)[9]}
        await desk.sync()

        assert (4, 4, 5) == (before, closed, len(await desk.rows()))
