"""Live tools on a breaking connection: complete answers are complete, changes are made once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom.app import App
from postroom.providers.imap.live import ImapAccounts
from tests.servers.imap_script import ScriptedImap, mails, scripted
from tests.servers.proxy import Proxy, proxied
from tests.surfaces.mcp.live_imap import TOOLS, account_at, answer, app_with

ID = "imap:default:INBOX:7:2"
READS: dict[str, dict[str, Any]] = {
    "imap_list_mailboxes": {},
    "imap_search_messages": {"mailbox": "INBOX", "include_snippet": True},
    "imap_get_message": {"message_id": ID},
    "imap_get_message_raw": {"message_id": ID},
}
CHANGES: dict[str, dict[str, Any]] = {
    "imap_update_message_flags": {"message_id": ID, "add_flags": [r"\Seen"]},
    "imap_copy_message": {"message_id": ID, "destination_mailbox": "Archive"},
    "imap_move_message": {"message_id": ID, "destination_mailbox": "Archive"},
    "imap_delete_message": {"message_id": ID, "confirm": True},
}
PLACES = 120
FOR_GOOD = 1_000_000


@dataclass(frozen=True)
class CutConnection:
    """An installation, a server, and a proxy between them."""

    app: App
    server: ScriptedImap
    proxy: Proxy

    async def call(self, tool: str) -> dict[str, Any]:
        """The data of an answer, without parts that differ from call to call."""
        body = await answer(self.app, tool, **(READS | CHANGES)[tool])
        data: dict[str, Any] = body["data"]
        return data

    async def size(self, tool: str) -> int:
        """The bytes that the server sends until a call on a new connection is answered."""
        self.proxy.cut_after = None
        await self.disconnect()
        self.proxy.reset()
        await self.call(tool)
        return self.proxy.bytes_from_server

    async def cut(self, offset: int, times: int) -> None:
        """End the next connections after so many bytes from the server."""
        await self.disconnect()
        self.proxy.cut_after, self.proxy.cuts = offset, times

    async def disconnect(self) -> None:
        """Close all connections, and wait until the installation has noticed."""
        self.proxy.cut_all()
        live = self.app.services.imap
        assert isinstance(live, ImapAccounts)
        clients = [client for pool in live._pools.values() for client, _ in pool._idle]
        while not all(client.connection.is_closed for client in clients):  # noqa: ASYNC110
            await asyncio.sleep(0)


@asynccontextmanager
async def connection(tmp_path: Path) -> AsyncIterator[CutConnection]:
    boxes = {b"INBOX": mails(10), b"Archive": {}}
    async with (
        scripted(mailboxes=boxes) as server,
        proxied(server.port) as proxy,
        app_with(tmp_path, account_at(proxy.port)) as app,
    ):
        yield CutConnection(app, server, proxy)


def places(size: int) -> range:
    return range(0, size, max(1, size // PLACES))


@pytest.mark.parametrize("tool", READS)
async def test_one_broken_connection_makes_no_difference(tmp_path, tool):
    async with connection(tmp_path) as opened:
        size = await opened.size(tool)
        whole = await opened.call(tool)
        for offset in places(size):
            await opened.cut(offset, 1)

            assert whole == await opened.call(tool), offset


@pytest.mark.parametrize("tool", READS)
async def test_a_partial_answer_is_never_reported_as_complete(tmp_path, tool):
    async with connection(tmp_path) as opened:
        size = await opened.size(tool)
        whole = await opened.call(tool)
        for offset in places(size):
            await opened.cut(offset, FOR_GOOD)
            found = await opened.call(tool)

            if found["status"] == "ok":
                assert whole == found, offset
                continue
            assert found["issues"][0]["retryable"], offset
            assert found["next_action"]["tool"] in TOOLS
            rows = found.get("messages", [])
            assert rows == [row for row in whole.get("messages", []) if row in rows]


@pytest.mark.parametrize("tool", CHANGES)
async def test_a_change_on_a_broken_connection_is_made_at_most_once(tmp_path, tool):
    async with connection(tmp_path) as opened:
        size = await opened.size(tool)
        for offset in places(size):
            opened.server.mailboxes |= {b"INBOX": mails(10), b"Archive": {}}
            before = state(opened.server)
            await opened.cut(offset, FOR_GOOD)
            found = await opened.call(tool)

            is_done = before != state(opened.server)
            assert len(opened.server.mailboxes[b"Archive"]) <= 1
            assert len(opened.server.mailboxes[b"INBOX"]) >= 9
            if found["status"] == "ok":
                assert is_done, offset
            else:
                assert found["issues"], offset


def state(server: ScriptedImap) -> dict[bytes, dict[int, frozenset[bytes]]]:
    return {
        name: {uid: frozenset(mail.flags) for uid, mail in box.items()}
        for name, box in server.mailboxes.items()
    }
