"""A PostgreSQL that is down, hangs or is read-only is unavailable until it recovers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from postroom.errors import Unavailable
from postroom.store import thread_pool
from postroom.store.postgres import connection as connections
from postroom.store.postgres import engine as engines
from postroom.store.postgres import liveness
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.transaction import Transaction
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy, proxied
from tests.stores.engines import SLEEPERS, names, put


async def test_a_server_that_stays_away_is_unavailable(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(url: str) -> object:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(engine._writer, "patience_s", 0.2)
    monkeypatch.setattr(liveness, "connect", away)

    with pytest.raises(Unavailable) as refused:
        await engine.write(lambda tx: put(tx, "never"))

    assert refused.value.retry_after > 0
    monkeypatch.undo()
    await engine.write(lambda tx: put(tx, "again"))
    assert ["again"] == await names(engine)


class PassingTime:
    """The time of an engine, which passes only while it pauses between two attempts."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.may_pause = threading.Event()

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.may_pause.wait()
        self.now_s += seconds


async def test_the_answer_comes_within_the_patience_for_who_waited_behind_another_too(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(url: str) -> object:
        if not attempts:
            asyncio.run_coroutine_threadsafe(queue(), loop)
        attempts.append(url)
        raise psycopg.OperationalError("connection refused")

    async def queue() -> None:
        waiting.append(asyncio.create_task(engine.write(lambda tx: put(tx, "second"))))
        while engine._writing._jobs.empty():  # noqa: ASYNC110 - a queue has no event
            await asyncio.sleep(0)
        time.may_pause.set()

    engine = await asyncio.to_thread(PostgresEngine.open, database_url, patience_s=2.0)
    time, attempts, loop = PassingTime(), list[str](), asyncio.get_running_loop()
    waiting = list[asyncio.Task[None]]()
    monkeypatch.setattr(engines, "time", time)
    monkeypatch.setattr(thread_pool, "time", time)
    monkeypatch.setattr(liveness, "connect", away)
    monkeypatch.setattr(engine._liveness, "look_s", 3600)

    with pytest.raises(Unavailable, match="does not answer"):
        await engine.write(lambda tx: put(tx, "first"))
    with pytest.raises(Unavailable, match="does not answer"):
        await waiting[0]
    written_s = time.now_s
    with pytest.raises(Unavailable, match="does not answer"):
        await names(engine)

    assert 1.5 < written_s < 2.2
    assert 1.5 < time.now_s - written_s < 2
    monkeypatch.undo()
    await engine.write(lambda tx: put(tx, "again"))
    assert ["again"] == await names(engine)
    await engine.close()


@pytest.fixture
async def silenced(
    database_url: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PostgresEngine, Proxy]]:
    """An engine with short timeouts, and a proxy that can withhold the server's responses."""
    async with proxied(postgres_server.port) as proxy:
        through = database_url.replace(f":{postgres_server.port}/", f":{proxy.port}/")
        opened = await asyncio.to_thread(PostgresEngine.open, through)
        opened._liveness.look_s, opened._liveness.connect_s = 0.05, 0.5
        yield opened, proxy
        proxy.stall_after = None
        proxy.cut_all()
        await opened.close()


async def test_closing_does_not_wait_for_a_hanging_server(
    silenced: tuple[PostgresEngine, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test would hang."""
    monkeypatch.setattr(liveness, "SHUTDOWN_CHECK_S", 0.3)
    engine, proxy = silenced
    engine._liveness.look_s = 3600
    await engine.write(lambda tx: put(tx, "before"))
    engine.notifier.position("mail")
    proxy.stall_after = 0
    reading = asyncio.create_task(names(engine))
    writing = asyncio.create_task(engine.write(lambda tx: put(tx, "unknown")))
    await asyncio.sleep(0)

    engine.begin_shutdown()

    for attempt in (reading, writing, names(engine)):
        with pytest.raises(Unavailable, match="does not answer"):
            await attempt
    await engine.close()


async def test_closing_does_not_wait_for_an_unreachable_server(
    engine: PostgresEngine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def away(url: str) -> object:
        attempts.append(database_url.rpartition("/")[2] in url)
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(engine._writer, "patience_s", 3600)
    monkeypatch.setattr(liveness, "connect", away)
    engine.begin_shutdown()

    with pytest.raises(Unavailable):
        await engine.write(lambda tx: put(tx, "never"))

    assert 2 == sum(attempts)


async def test_closing_waits_for_a_slow_server(engine: PostgresEngine) -> None:
    writing = [engine.write(lambda tx, n=n: slowly_put(tx, f"n{n}")) for n in range(3)]
    all_of_them = asyncio.gather(*writing)
    await asyncio.sleep(0)

    engine.begin_shutdown()

    await all_of_them
    assert ["n0", "n1", "n2"] == await names(engine)


def slowly_put(tx: Transaction, name: str) -> None:
    tx.one("SELECT 1 FROM pg_sleep(0.7)")
    put(tx, name)


async def test_a_hanging_server_is_unavailable_until_it_recovers(
    silenced: tuple[PostgresEngine, Proxy],
) -> None:
    engine, proxy = silenced
    await engine.write(lambda tx: put(tx, "before"))
    await names(engine)

    proxy.stall_after = 0
    for attempt in (names(engine), engine.write(lambda tx: put(tx, "unknown"))):
        with pytest.raises(Unavailable, match="does not answer"):
            await attempt
    proxy.stall_after = None
    proxy.cut_all()

    await engine.write(lambda tx: put(tx, "after"))
    assert {"before", "after"} <= set(await names(engine))


async def test_slow_work_is_not_cancelled_while_the_server_responds(
    silenced: tuple[PostgresEngine, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, proxy = silenced
    engine._liveness.connect_s = 60
    opened = proxy.connections

    await engine.read(lambda tx: tx.one("SELECT 1 FROM pg_sleep(1)"))

    assert proxy.connections > opened + 1


async def test_a_dead_first_server_does_not_hide_the_second(
    database_url: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It delays the first connection; then the server that responded is tried first."""
    monkeypatch.setitem(connections.OPTIONS, "connect_timeout", 2)
    async with proxied(postgres_server.port) as dead:
        dead.stall_after = 0
        both = f"127.0.0.1:{dead.port},127.0.0.1:{postgres_server.port}"
        url = database_url.replace(f"127.0.0.1:{postgres_server.port}", both)
        opened = await asyncio.to_thread(PostgresEngine.open, url)
        opened._liveness.look_s, opened._liveness.connect_s = 0.05, 2

        await opened.read(lambda tx: tx.one("SELECT 1 FROM pg_sleep(0.5)"))
        asked = dead.connections
        await opened.write(lambda tx: put(tx, "there"))
        await opened.read(lambda tx: tx.one("SELECT 1 FROM pg_sleep(0.5)"))

        assert (["there"], asked) == (await names(opened), dead.connections)
        await opened.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p%40@a:1,b:2/m", {"host": "b,a", "port": "2,1", "password": "p@"}),
        ("postgresql://a,b/m?port=5", {"host": "b,a", "port": "5"}),
        ("postgresql://b:2/m", {"host": "b", "port": "2"}),
        ("postgresql:///m", {"dbname": "m"}),
    ],
)
def test_the_server_that_responded_is_tried_first(url: str, expected: dict[str, str]) -> None:
    named = liveness.Hosts(url)

    named.remember(FakeConnectionInfo("b", 5 if "port=5" in url else 2))

    said = conninfo_to_dict(named.url)
    assert expected.items() <= said.items()
    assert said.keys() == conninfo_to_dict(url).keys()


@dataclass
class FakeConnectionInfo:
    """The server of a connection, as psycopg reports it."""

    host: str
    port: int


async def test_a_read_only_server_is_unavailable_until_it_is_promoted(
    engine: PostgresEngine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._writer, "patience_s", 0.2)
    await engine.write(lambda tx: put(tx, "before"))
    set_read_only(database_url, "on")

    with pytest.raises(Unavailable, match="read-only") as refused:
        await engine.write(lambda tx: put(tx, "never"))

    assert refused.value.retry_after > 0
    set_read_only(database_url, "off")
    await engine.write(lambda tx: put(tx, "after"))
    assert ["after", "before"] == await names(engine)


def set_read_only(url: str, truth: str) -> None:
    """Make a server behave like a standby."""
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {truth}".encode())
        admin.execute(SLEEPERS)
