"""Requirements for opening a PostgreSQL database, and waits for other processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from postroom.errors import MailError, Unavailable
from postroom.store import upgrade
from postroom.store.postgres import connection as connections
from postroom.store.postgres import engine as engines
from postroom.store.postgres import engine as writers
from postroom.store.postgres import migrations
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.postgres.migrations import migrate
from postroom.store.upgrade import VERSION
from tests.servers.postgres import Postgres, running
from tests.stores.old_stores import OLDEST, OldStore

WAITING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_is_not_in_utf_8_is_refused(
    postgres_server: Postgres, encoding: str
) -> None:
    name = f"in_{encoding.lower()}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as admin:
        made = f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        admin.execute(made.encode())

    with pytest.raises(MailError, match=f"in {encoding}.*ENCODING 'UTF8'"):
        PostgresEngine.open(postgres_server.url(name))

    postgres_server.drop(postgres_server.url(name))


def test_a_database_of_a_newer_postroom_is_refused(database_url: str) -> None:
    with connections.connect(database_url) as connection:
        connection.execute("UPDATE schema_version SET version = 1000")
        with pytest.raises(MailError, match="newer"):
            migrate(connection)


def test_an_upgrade_waits_for_writers(database_url: str, tmp_path: Path) -> None:
    OldStore(OLDEST, tmp_path, database_url, rows=False)
    with connections.connect(database_url) as writer, connections.connect(database_url) as other:
        other.execute("SET lock_timeout = '20ms'")
        writer.execute(writers.LOCK)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            migrate(other)
        writer.execute("ROLLBACK")
        migrate(other)
        row = other.execute("SELECT version FROM schema_version").fetchone()

    assert (VERSION,) == row


async def test_a_start_during_a_migration_waits_for_its_end(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SESSION", "SET lock_timeout = '1ms'")
    with psycopg.connect(database_url) as admin:
        admin.execute(f"SELECT pg_advisory_xact_lock{migrations.MIGRATING}".encode())
        opening = asyncio.create_task(asyncio.to_thread(PostgresEngine.open, database_url))
        await asyncio.to_thread(until_waited_for, admin, opening)
        await asyncio.wait([opening], timeout=0.2)

        assert not opening.done()
    await (await opening).close()


TIMEOUTS = (
    *("statement_timeout", "lock_timeout"),
    *("idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout"),
)


def limit_everything(url: str) -> None:
    """Set the timeouts that the administrator of a server may set for a database."""
    with psycopg.connect(url, autocommit=True) as admin:
        name = admin.info.dbname
        known = admin.execute(
            "SELECT name FROM pg_settings WHERE name = ANY(%s)", [list(TIMEOUTS)]
        ).fetchall()
        for (timeout,) in known:
            admin.execute(f"ALTER DATABASE {name} SET {timeout} = '150ms'".encode())


async def test_timeouts_of_the_database_end_neither_an_upgrade_nor_a_query(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OldStore(OLDEST, tmp_path, database_url, rows=False)
    slow = ("SELECT pg_sleep(0.3)", "SELECT pg_sleep(0.1)")
    monkeypatch.setitem(
        upgrade.DATA, upgrade.VERSION, (*upgrade.DATA.get(upgrade.VERSION, ()), *slow)
    )
    limit_everything(database_url)

    engine = await asyncio.to_thread(PostgresEngine.open, database_url)
    read = await engine.read(lambda tx: tx.all("SELECT pg_sleep(0.3), 1")[0][1])
    written = await engine.write(lambda tx: tx.all("SELECT pg_sleep(0.3), 2")[0][1])
    await engine.close()

    assert (1, 2) == (read, written)


async def test_timeouts_of_the_database_do_not_end_a_wait_for_a_migration(
    database_url: str,
) -> None:
    limit_everything(database_url)
    with psycopg.connect(database_url) as admin:
        admin.execute(connections._SESSION.encode())
        admin.execute(f"SELECT pg_advisory_xact_lock{migrations.MIGRATING}".encode())
        opening = asyncio.create_task(asyncio.to_thread(PostgresEngine.open, database_url))
        await asyncio.to_thread(until_waited_for, admin, opening)
        await asyncio.wait([opening], timeout=0.4)

        assert not opening.done()
    await (await opening).close()


def until_waited_for(admin: psycopg.Connection, opening: asyncio.Task[PostgresEngine]) -> None:
    while not opening.done() and admin.execute(WAITING).fetchone() is None:
        pass


async def test_a_starting_server_is_waited_for() -> None:
    with running() as server:
        url = server.new_database()
        server.control("stop", "-m", "fast")
        opening = asyncio.create_task(asyncio.to_thread(PostgresEngine.open, url))
        await asyncio.wait([opening], timeout=0.2)
        assert not opening.done()
        await asyncio.to_thread(server.control, "start")

        await (await opening).close()


def test_permanent_errors_are_reported_at_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test would time out."""
    monkeypatch.setattr(engines, "RETRY_S", float("inf"))

    with pytest.raises(Unavailable, match="does not exist; check POSTROOM_DATABASE_URL"):
        PostgresEngine.open(database_url + "_and_no_more")


def test_a_database_that_cannot_be_reached_is_named_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "RETRY_S", 0.0)
    with pytest.raises(Unavailable) as refused:
        PostgresEngine.open("postgresql://me:secret@127.0.0.1:9/postroom")

    assert "127.0.0.1" in str(refused.value)
    assert "secret" not in str(refused.value)
