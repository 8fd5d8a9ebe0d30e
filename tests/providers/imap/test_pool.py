"""The connection pool: few connections, kept open, used by one task at a time."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from postroom.errors import ProviderError, ProviderTimeout
from postroom.model.imap import ImapCriteria, ImapTimeouts
from postroom.providers.imap.errors import Disconnected, TimedOut
from postroom.providers.imap.pool import MAX_CONNECTIONS
from tests.mails import mail
from tests.providers.imap.conftest import account, connected, local
from tests.servers.imap_script import ImapCommand, scripted
from tests.servers.imaplib_client import imaplib_mailbox
from tests.servers.proxy import proxied

ALL = ImapCriteria()


async def test_sequential_work_uses_one_connection():
    async with scripted() as server, connected(local(server.port)) as live:
        for _ in range(5):
            await live.read("default", lambda session: session.mailboxes())

    assert 1 == server.connections


async def test_the_number_of_connections_is_limited():
    async with scripted() as server, connected(local(server.port)) as live:
        await asyncio.gather(
            *(live.read("default", lambda session: session.mailboxes()) for _ in range(40))
        )

    assert server.connections <= MAX_CONNECTIONS


async def test_a_new_connection_replaces_an_idle_one_at_the_limit():
    """Each verification connects anew, and a server allows only so many."""
    async with (
        scripted() as server,
        proxied(server.port) as proxy,
        connected(local(proxy.port)) as live,
    ):
        for _ in range(3 * MAX_CONNECTIONS):
            async with live.fresh_session("default") as session:
                await session.mailboxes()
                assert len(live._pools["default"]._idle) < MAX_CONNECTIONS
        open_now = [talk for talk in proxy._open if not talk.client.is_closing()]

    assert 3 * MAX_CONNECTIONS == server.connections
    assert len(open_now) <= MAX_CONNECTIONS


async def test_waiting_for_a_free_connection_times_out():
    quick = ImapTimeouts(connect_s=2)
    async with (
        scripted() as server,
        connected(local(server.port), timeouts=quick) as live,
        AsyncExitStack() as held,
    ):
        for _ in range(MAX_CONNECTIONS):
            await held.enter_async_context(live.session("default"))

        with pytest.raises(ProviderTimeout, match="in use"):
            await live.read("default", lambda session: session.mailboxes())


async def test_cancelled_work_closes_its_connection():
    asked = asyncio.Event()

    def silent(_: ImapCommand) -> bytes:
        asked.set()
        return b""

    async with scripted(replies={"LIST": silent}) as server, connected(local(server.port)) as live:
        work = asyncio.ensure_future(live.read("default", lambda session: session.mailboxes()))
        await asked.wait()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        found = await live.read(
            "default", lambda session: session.find("INBOX", ALL, limit=1, max_matches=9)
        )

    assert 5 == found.total
    assert 2 == server.connections


async def test_a_connection_that_the_server_ended_is_replaced():
    async with (
        scripted() as server,
        proxied(server.port) as proxy,
        connected(local(proxy.port)) as live,
    ):
        await live.read("default", lambda session: session.mailboxes())
        proxy.cut_all()
        await asyncio.sleep(0.05)
        async with live.session("default") as session:
            await session.mailboxes()

    assert 2 == server.connections


async def test_an_idle_connection_is_closed(monkeypatch):
    monkeypatch.setattr("postroom.providers.imap.pool.MAX_IDLE_S", 0.05)
    left = asyncio.Event()
    async with scripted() as server, connected(local(server.port)) as live:
        await live.read("default", lambda session: session.mailboxes())
        (pool,) = live._pools.values()
        ((client, _),) = pool._idle
        monkeypatch.setattr(client.connection, "connection_lost", lambda _: left.set())
        await asyncio.wait_for(left.wait(), 60)

        assert client.connection.is_closed
        assert [] == pool._idle


async def test_closing_sends_logout():
    async with scripted() as server, connected(local(server.port)) as live:
        await live.read("default", lambda session: session.mailboxes())
        await live.close()

    assert server.lines[-1].endswith(b" LOGOUT\r\n")


async def test_a_refused_connection_is_reported_as_such():
    async with connected(local(1)) as live:
        with pytest.raises(ProviderError, match="no connection"):
            await live.read("default", lambda session: session.mailboxes())


async def test_idle_reports_changes_in_a_mailbox(dovecot):
    with imaplib_mailbox(dovecot, "alice") as box:
        async with connected(account(dovecot)) as live, live.session("default") as session:
            client = session.client
            await client.open(box.name.encode())
            stop = asyncio.get_running_loop().create_future()
            waiting = asyncio.ensure_future(
                client.watch(stop, lambda _: stop.done() or stop.set_result(None))
            )
            await asyncio.sleep(0)
            box.append(mail("New"))
            await asyncio.wait_for(waiting, 60)

            assert stop.done()
            assert not client.connection.is_busy


async def test_idle_ends_after_its_timeout_and_can_be_repeated(monkeypatch):
    monkeypatch.setattr("postroom.providers.imap.client.IDLE_S", 0.05)
    async with (
        scripted(replies={"IDLE": b"+ idling\r\n"}) as server,
        connected(local(server.port)) as live,
        live.session("default") as session,
    ):
        for _ in range(3):
            stop = asyncio.get_running_loop().create_future()
            await session.client.watch(stop, lambda _: None)

    words = [line.split()[-1] for line in server.lines if line.strip()]
    assert 3 == words.count(b"IDLE") == words.count(b"DONE")


@pytest.mark.parametrize("end", [b"+ idling\r\n* BYE enough\r\n", b"+ idling\r\n"])
async def test_a_connection_that_breaks_during_idle_is_detected(monkeypatch, end):
    monkeypatch.setattr("postroom.providers.imap.client.IDLE_S", 0.05)
    quick = ImapTimeouts(socket_s=2)
    async with (
        scripted(replies={"IDLE": end}, is_dead_in_idle=True) as server,
        connected(local(server.port), timeouts=quick) as live,
        live.session("default") as session,
    ):
        stop = asyncio.get_running_loop().create_future()
        with pytest.raises((TimedOut, Disconnected)):
            await session.client.watch(stop, lambda _: None)
