"""Broken connections: nothing is lost, duplicated or returned incomplete.

`CUTS=2000 pytest tests/providers/imap/test_cuts.py` cuts at that many offsets.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from postroom.errors import ProviderError, ProviderTimeout
from postroom.model.imap import (
    ImapCriteria,
    ImapFound,
    ImapLocator,
    ImapSummary,
    ImapTimeouts,
)
from postroom.ports.imap import ImapSession
from postroom.providers.imap.client import Client
from postroom.providers.imap.connection import Connection
from postroom.providers.imap.errors import Disconnected
from postroom.providers.imap.live import ImapAccounts
from postroom.providers.imap.responses import Row
from tests.mails import mail
from tests.providers.imap.conftest import account, connected, local
from tests.servers.imap_script import HEADER, mails, scripted
from tests.servers.imaplib_client import imaplib_mailbox
from tests.servers.proxy import Proxy, proxied

ALL = ImapCriteria()
SIZE = 50
CUTS = int(os.environ.get("CUTS", "200"))


class PageReader:
    """Reads a page of a mailbox, and continues after a lost connection."""

    def __init__(self, mailbox: str) -> None:
        self.mailbox = mailbox
        self.found: ImapFound | None = None
        self.rows: dict[int, ImapSummary] = {}
        self.fetched: list[int] = []

    async def read(self, session: ImapSession) -> None:
        if self.found is None:
            self.found = await session.find(self.mailbox, ALL, limit=SIZE, max_matches=20_000)
        missing = [uid for uid in self.found.uids if uid not in self.rows]
        self.fetched += missing
        if missing:
            await session.summaries(
                self.mailbox, self.found.uidvalidity, missing, snippet_chars=None, into=self.rows
            )


@asynccontextmanager
async def behind_a_proxy(port: int) -> AsyncIterator[tuple[Proxy, ImapAccounts]]:
    async with proxied(port) as proxy, connected(local(proxy.port)) as live:
        yield proxy, live


async def bytes_of_a_page(proxy: Proxy, live: ImapAccounts) -> int:
    proxy.reset()
    page = PageReader("INBOX")
    async with live.fresh_session("default") as session:
        await page.read(session)
    assert SIZE == len(page.rows)
    return proxy.bytes_from_server


async def test_a_connection_cut_at_any_offset_is_replaced_and_reading_continues():
    boxes = {b"INBOX": mails(SIZE)}
    async with scripted(mailboxes=boxes) as server, behind_a_proxy(server.port) as (proxy, live):
        size = await bytes_of_a_page(proxy, live)
        for offset in range(1, size, max(1, size // CUTS)):
            await close_connections(live)
            proxy.cut_after, proxy.cuts = offset, 1
            page = PageReader("INBOX")
            await live.read("default", page.read)
            assert set(range(1, SIZE + 1)) == set(page.rows), offset


class NullTransport(asyncio.Transport):
    """A transport that discards everything."""

    def write(self, data: object) -> None:
        pass

    def abort(self) -> None:
        pass


async def test_a_fetch_cut_at_any_offset_returns_complete_rows_only():
    literal = HEADER % 1 + b"\r\n"
    row = b"* %d FETCH (UID %d FLAGS (\\Seen) BODY[HEADER]<0> {%d}\r\n%s)\r\n"
    rows = [row % (n, n, len(literal), literal) for n in range(1, SIZE + 1)]
    transcript = b"".join(rows) + b"P1 OK done\r\n"
    offsets = range(0, len(transcript), len(transcript) // 2_050)
    for offset in offsets:
        got: list[Row] = []
        connection = Connection(socket_s=5)
        connection.connection_made(NullTransport())
        connection.data_received(b"* OK ready\r\n")
        fetching = asyncio.ensure_future(
            Client(connection).fetch(range(1, SIZE + 1), b"UID", got.append)
        )
        await asyncio.sleep(0)
        connection.data_received(transcript[:offset])
        connection.connection_lost(None)
        (end,) = await asyncio.gather(fetching, return_exceptions=True)

        assert isinstance(end, Disconnected), offset
        whole = transcript[:offset].count(b")\r\n")
        assert list(range(1, whole + 1)) == [r.uid for r in got]
        assert all(literal == r.data(b"BODY[HEADER]") for r in got)

    assert len(offsets) >= 2_000


async def close_connections(live: ImapAccounts) -> None:
    """Close every connection, so that the next one is new."""
    for pool in live._pools.values():
        for client, _ in pool._idle:
            client.connection.close("left")


async def test_repeated_cuts_are_an_error_with_the_rows_so_far():
    boxes = {b"INBOX": mails(SIZE)}
    async with scripted(mailboxes=boxes) as server, behind_a_proxy(server.port) as (proxy, live):
        size = await bytes_of_a_page(proxy, live)
        for offset in range(10, size, size // 60):
            await close_connections(live)
            proxy.cut_after, proxy.cuts = offset, 1_000_000
            page = PageReader("INBOX")
            with suppress(ProviderError):
                await live.read("default", page.read)
            for row in page.rows.values():
                assert row.header.endswith(b"\r\n\r\n")
                assert b"Hello %d\r\n" % row.uid in row.header


async def test_cuts_with_a_real_server(dovecot):
    with imaplib_mailbox(dovecot, "alice") as box:
        for number in range(SIZE):
            box.append(mail(f"Mail {number}"))
        given = account(dovecot)
        async with proxied(dovecot.imaps) as proxy:
            object.__setattr__(given, "port", proxy.port)
            async with connected(given) as live:
                whole = PageReader(box.name)
                async with live.fresh_session("default") as session:
                    await whole.read(session)
                size = proxy.bytes_from_server
                for offset in range(1, size, size // 40):
                    await close_connections(live)
                    proxy.cut_after, proxy.cuts = offset, 1
                    page = PageReader(box.name)
                    await live.read("default", page.read)
                    assert whole.rows == page.rows


async def test_an_idle_connection_that_died_is_replaced(monkeypatch):
    monkeypatch.setattr("postroom.providers.imap.pool.STALE_S", 0.0)
    monkeypatch.setattr("postroom.providers.imap.pool.FIRST_RESPONSE_S", 0.2)
    async with scripted() as server, behind_a_proxy(server.port) as (proxy, live):
        first = await live.read("default", lambda session: session.mailboxes())
        proxy.stall_after = 0
        asyncio.get_running_loop().call_later(0.15, setattr, proxy, "stall_after", None)

        again = await live.read("default", lambda session: session.mailboxes())

    assert first == again


async def test_a_stalled_connection_times_out():
    quick = ImapTimeouts(socket_s=2)
    async with (
        scripted(mailboxes={b"INBOX": mails(SIZE)}) as server,
        proxied(server.port) as proxy,
        connected(local(proxy.port), timeouts=quick) as live,
    ):
        proxy.stall_after = 2_000
        page = PageReader("INBOX")
        with pytest.raises(ProviderTimeout):
            await live.read("default", page.read)

    assert 0 < len(page.rows) < SIZE


async def test_a_slow_connection_only_takes_longer():
    async with (
        scripted(mailboxes={b"INBOX": mails(5)}) as server,
        proxied(server.port) as proxy,
        connected(local(proxy.port)) as live,
    ):
        proxy.bytes_per_s, proxy.round_trip_s = 20_000.0, 0.05
        page = PageReader("INBOX")
        await live.read("default", page.read)

    assert {1, 2, 3, 4, 5} == set(page.rows)


@pytest.mark.parametrize("work", ["move", "copy"])
async def test_a_change_is_never_sent_twice(work):
    at = ImapLocator("default", "INBOX", 7, 1)
    boxes = {b"INBOX": mails(3), b"Archive": {}}
    async with (
        scripted(mailboxes=boxes) as server,
        behind_a_proxy(server.port) as (proxy, live),
        live.session("default") as session,
    ):
        await session.exists(at)
        proxy.reset()
        proxy.cut_after = 1
        with pytest.raises(ProviderError):
            await getattr(session, work)(at, "Archive")

    assert 1 == sum(work.upper().encode() in line for line in server.lines)
