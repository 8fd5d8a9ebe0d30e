"""Connections to PostgreSQL that break: transactions are retried, and take effect once."""

from __future__ import annotations

import psycopg
import pytest

from postroom.store.postgres import connection as connections
from postroom.store.postgres import liveness
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.transaction import Transaction
from tests.stores.engines import SLEEPERS, names, put

OPEN = """
    SELECT 1 FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
       AND backend_type = 'client backend'
"""


def cut_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(SLEEPERS)


async def test_work_goes_on_when_every_connection_is_cut(
    engine: PostgresEngine, database_url: str
) -> None:
    await engine.write(lambda tx: put(tx, "before"))
    await names(engine)
    cut_connections(database_url)

    await engine.write(lambda tx: put(tx, "after"))

    assert ["after", "before"] == await names(engine)


async def test_a_transaction_that_is_cut_off_is_retried_and_takes_effect_once(
    engine: PostgresEngine, database_url: str
) -> None:
    attempts = []

    def work(tx: Transaction) -> int:
        attempts.append(1)
        put(tx, "once")
        if len(attempts) == 1:
            cut_connections(database_url)
        row = tx.one("SELECT count(*) FROM metadata WHERE name = 'once'")
        return int(row[0]) if row else 0

    assert 1 == await engine.write(work)
    assert 2 == len(attempts)
    assert ["once"] == await names(engine)


async def test_a_transaction_that_timed_out_is_retried(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes idle transactions, for example of a machine that slept."""
    engine = PostgresEngine.open(database_url)
    short = "SET idle_in_transaction_session_timeout = '300ms'"
    monkeypatch.setattr(connections, "_SESSION", short)
    attempts: list[int] = []

    def work(tx: Transaction) -> tuple[object, ...] | None:
        attempts.append(1)
        tx.one("SELECT 1")
        if len(attempts) == 1:
            until_cut(database_url)
        return tx.one("SELECT 2")

    assert (2,) == await engine.read(work)
    assert len(attempts) > 1
    await engine.close()


def until_cut(url: str) -> None:
    """Wait until no transaction is open."""
    with psycopg.connect(url, autocommit=True) as admin:
        while admin.execute(OPEN).fetchone() is not None:
            pass


async def test_the_server_may_close_idle_connections(
    engine: PostgresEngine, database_url: str
) -> None:
    name = database_url.rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET idle_session_timeout = '1h'".encode())
    other = PostgresEngine.open(database_url)

    [row] = await other.read(lambda tx: tx.all("SHOW idle_session_timeout"))

    assert ("0",) == row
    await other.close()


def test_a_closed_idle_connection_is_replaced() -> None:
    states = ("57P05", "25P03")

    assert [True, True] == [connections.is_transient(psycopg.errors.lookup(s)()) for s in states]
    assert not connections.is_transient(psycopg.errors.lookup("XX000")())


@pytest.mark.parametrize("is_committed", [True, False])
async def test_an_unconfirmed_commit_takes_effect_once(
    engine: PostgresEngine,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
) -> None:
    attempts, database = [], database_url.rpartition("/")[2]
    real = liveness.connect

    class BrokenAtCommit:
        """A connection that breaks at its first commit, before or after the server executes it."""

        def __init__(self, inner: psycopg.Connection) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

        def execute(self, statement: str) -> object:
            if statement == "COMMIT":
                if is_committed:
                    self._inner.execute("COMMIT")
                self._inner.close()
                raise psycopg.OperationalError("the connection was lost")
            return self._inner.execute(statement)

    def connect(url: str) -> object:
        if database not in url:  # an engine of another test in this process
            return real(url)
        attempts.append(url)
        return BrokenAtCommit(real(url)) if len(attempts) == 1 else real(url)

    monkeypatch.setattr(liveness, "connect", connect)
    ran = []

    def work(tx: Transaction) -> str:
        ran.append(1)
        put(tx, "once")
        return f"attempt {len(ran)}"

    answer = await engine.write(work)

    assert ("attempt 1" if is_committed else "attempt 2") == answer
    assert 2 == len(attempts)
    assert ["once"] == await names(engine)
