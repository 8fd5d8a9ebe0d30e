"""The PostgreSQL engine: shared commits, failures that stay apart, a server that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from postroom.errors import InvalidInput, Unavailable, Unstorable
from postroom.store.postgres import connection as connections
from postroom.store.postgres import hosts, pulse
from postroom.store.postgres import writer as writers
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.transaction import Transaction
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy, proxied

PUT = "INSERT INTO facts (name, value) VALUES (:name, :value)"
SLEEPERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
OPEN = """
    SELECT 1 FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
       AND backend_type = 'client backend'
"""


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[PostgresEngine]:
    opened = PostgresEngine.open(database_url)
    yield opened
    await opened.close()


def put(tx: Transaction, name: str) -> None:
    tx.run(PUT, name=name, value=b"1")


async def names(engine: PostgresEngine) -> list[str]:
    rows = await engine.read(lambda tx: tx.all("SELECT name FROM facts ORDER BY name"))
    return [row[0] for row in rows if row[0] != "secret"]


def cut_connections(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(SLEEPERS)


async def test_one_job_that_fails_leaves_those_beside_it_alone(engine: PostgresEngine) -> None:
    def fails(tx: Transaction) -> None:
        put(tx, "half")
        raise ValueError("no")

    def clashes(tx: Transaction) -> None:
        put(tx, "other")
        put(tx, "other")

    def clashes_unseen(tx: Transaction) -> None:
        tx.put(PUT, name="third", value=b"1")
        tx.put(PUT, name="third", value=b"1")

    jobs = [engine.write(lambda tx, n=n: put(tx, f"n{n}")) for n in range(9)]
    results = await asyncio.gather(
        *jobs,
        engine.write(fails),
        engine.write(clashes),
        engine.write(clashes_unseen),
        engine.write(lambda tx: put(tx, "n9")),
        return_exceptions=True,
    )

    assert [ValueError, Unstorable, Unstorable, type(None)] == [type(one) for one in results[-4:]]
    assert [f"n{number}" for number in range(10)] == await names(engine)


async def test_a_reader_sees_one_moment(engine: PostgresEngine, database_url: str) -> None:
    def twice(tx: Transaction) -> tuple[object, object]:
        before = tx.one("SELECT count(*) FROM facts")
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("INSERT INTO facts (name, value) VALUES ('new', '')")
        return before, tx.one("SELECT count(*) FROM facts")

    before, after = await engine.read(twice)

    assert before == after
    assert ["new"] == await names(engine)


async def test_work_goes_on_when_every_connection_is_cut(
    engine: PostgresEngine, database_url: str
) -> None:
    await engine.write(lambda tx: put(tx, "before"))
    await names(engine)
    cut_connections(database_url)

    await engine.write(lambda tx: put(tx, "after"))

    assert ["after", "before"] == await names(engine)


async def test_a_cut_inside_a_transaction_is_tried_again_and_happens_once(
    engine: PostgresEngine, database_url: str
) -> None:
    attempts = []

    def work(tx: Transaction) -> int:
        attempts.append(1)
        put(tx, "once")
        if len(attempts) == 1:
            cut_connections(database_url)
        row = tx.one("SELECT count(*) FROM facts WHERE name = 'once'")
        return int(row[0]) if row else 0

    assert 1 == await engine.write(work)
    assert 2 == len(attempts)
    assert ["once"] == await names(engine)


async def test_a_pause_inside_a_transaction_is_tried_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server cuts off who is silent: a machine that slept, say."""
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
    """Return when nobody has a transaction open."""
    with psycopg.connect(url, autocommit=True) as admin:
        while admin.execute(OPEN).fetchone() is not None:
            pass


async def test_the_server_may_end_connections_that_nobody_uses(
    engine: PostgresEngine, database_url: str
) -> None:
    name = database_url.rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET idle_session_timeout = '1h'".encode())
    other = PostgresEngine.open(database_url)

    [row] = await other.read(lambda tx: tx.all("SHOW idle_session_timeout"))

    assert ("0",) == row
    await other.close()


def test_who_was_idle_for_too_long_tries_again() -> None:
    states = ("57P05", "25P03")

    assert [True, True] == [connections.is_passing(psycopg.errors.lookup(s)()) for s in states]
    assert not connections.is_passing(psycopg.errors.lookup("XX000")())


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_commit_that_nobody_confirms_happens_once(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    attempts = []
    real = hosts.connect

    class Deaf:
        """A connection that breaks at its first commit, before or after the server has it."""

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
        attempts.append(url)
        return Deaf(real(url)) if len(attempts) == 1 else real(url)

    monkeypatch.setattr(hosts, "connect", connect)
    ran = []

    def work(tx: Transaction) -> str:
        ran.append(1)
        put(tx, "once")
        return f"attempt {len(ran)}"

    answer = await engine.write(work)

    assert ("attempt 1" if is_committed else "attempt 2") == answer
    assert 2 == len(attempts)
    assert ["once"] == await names(engine)


async def test_a_server_that_stays_away_is_unavailable(
    engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(url: str) -> object:
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(writers, "PATIENCE_S", 0.2)
    monkeypatch.setattr(hosts, "connect", away)

    with pytest.raises(Unavailable) as refused:
        await engine.write(lambda tx: put(tx, "never"))

    assert refused.value.retry_after > 0
    monkeypatch.undo()
    await engine.write(lambda tx: put(tx, "again"))
    assert ["again"] == await names(engine)


@pytest.fixture
async def silenced(
    database_url: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PostgresEngine, Proxy]]:
    """An engine that is told early, and a proxy that can keep from it what the server says."""
    monkeypatch.setattr(pulse, "LOOK_S", 0.05)
    monkeypatch.setattr(pulse, "CONNECT_S", 0.5)
    async with proxied(postgres_server.port) as proxy:
        through = database_url.replace(f":{postgres_server.port}/", f":{proxy.port}/")
        opened = await asyncio.to_thread(PostgresEngine.open, through)
        yield opened, proxy
        proxy.stall_after = None
        proxy.cut_all()
        await opened.close()


async def test_a_server_that_hangs_is_not_waited_for_at_the_end(
    silenced: tuple[PostgresEngine, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that, the test would wait for ever."""
    monkeypatch.setattr(pulse, "LOOK_S", 3600)
    monkeypatch.setattr(pulse, "HURRY_S", 0.3)
    engine, proxy = silenced
    await engine.write(lambda tx: put(tx, "before"))
    engine.bell.rung("mail")
    proxy.stall_after = 0
    reading = asyncio.create_task(names(engine))
    writing = asyncio.create_task(engine.write(lambda tx: put(tx, "unknown")))
    await asyncio.sleep(0)

    engine.hurry()

    for attempt in (reading, writing, names(engine)):
        with pytest.raises(Unavailable, match="does not answer"):
            await attempt
    await engine.close()


async def test_a_server_that_is_away_is_not_waited_for_at_the_end(
    engine: PostgresEngine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def away(url: str) -> object:
        attempts.append(database_url.rpartition("/")[2] in url)
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(writers, "PATIENCE_S", 3600)
    monkeypatch.setattr(hosts, "connect", away)
    engine.hurry()

    with pytest.raises(Unavailable):
        await engine.write(lambda tx: put(tx, "never"))

    assert 2 == sum(attempts)


async def test_a_server_that_is_slow_is_waited_for_at_the_end(engine: PostgresEngine) -> None:
    writing = [engine.write(lambda tx, n=n: slowly_put(tx, f"n{n}")) for n in range(3)]
    all_of_them = asyncio.gather(*writing)
    await asyncio.sleep(0)

    engine.hurry()

    await all_of_them
    assert ["n0", "n1", "n2"] == await names(engine)


def slowly_put(tx: Transaction, name: str) -> None:
    tx.one("SELECT 1 FROM pg_sleep(0.7)")
    put(tx, name)


async def test_a_server_that_hangs_is_unavailable_and_then_work_goes_on(
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


async def test_work_that_takes_long_is_let_be_while_the_server_answers_others(
    silenced: tuple[PostgresEngine, Proxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "CONNECT_S", 60)
    engine, proxy = silenced
    opened = proxy.connections

    await engine.read(lambda tx: tx.one("SELECT 1 FROM pg_sleep(1)"))

    assert proxy.connections > opened + 1


async def test_a_first_server_that_is_dead_and_silent_hides_no_other(
    database_url: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It costs its time once; then the one that answered is asked first."""
    monkeypatch.setitem(connections.OPTIONS, "connect_timeout", 2)
    async with proxied(postgres_server.port) as dead:
        dead.stall_after = 0
        both = f"127.0.0.1:{dead.port},127.0.0.1:{postgres_server.port}"
        url = database_url.replace(f"127.0.0.1:{postgres_server.port}", both)
        opened = await asyncio.to_thread(PostgresEngine.open, url)
        monkeypatch.setattr(pulse, "LOOK_S", 0.05)
        monkeypatch.setattr(pulse, "CONNECT_S", 2)

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
def test_the_server_that_answered_is_asked_first(url: str, expected: dict[str, str]) -> None:
    named = hosts.Hosts(url)

    named.remember(Answered("b", 5 if "port=5" in url else 2))

    said = conninfo_to_dict(named.url)
    assert expected.items() <= said.items()
    assert said.keys() == conninfo_to_dict(url).keys()


@dataclass
class Answered:
    """Who answered, as psycopg says it."""

    host: str
    port: int


async def test_a_server_that_only_reads_is_unavailable_until_it_is_promoted(
    engine: PostgresEngine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "PATIENCE_S", 0.2)
    await engine.write(lambda tx: put(tx, "before"))
    set_read_only(database_url, "on")

    with pytest.raises(Unavailable, match="only be read") as refused:
        await engine.write(lambda tx: put(tx, "never"))

    assert refused.value.retry_after > 0
    set_read_only(database_url, "off")
    await engine.write(lambda tx: put(tx, "after"))
    assert ["after", "before"] == await names(engine)


def set_read_only(url: str, truth: str) -> None:
    """What a server does that is not promoted yet."""
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {truth}".encode())
        admin.execute(SLEEPERS)


async def test_marks_of_processes_that_are_over_are_forgotten(
    engine: PostgresEngine, database_url: str
) -> None:
    await engine.write(lambda tx: put(tx, "one"))
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("INSERT INTO write_marks SELECT n, 1 FROM generate_series(1, 9) n")
        admin.execute("UPDATE write_marks SET at = now() - interval '1 day' WHERE writer <> '9'")
    other = PostgresEngine.open(database_url)

    await other.write(lambda tx: put(tx, "two"))

    await other.close()
    await engine.write(lambda tx: put(tx, "three"))
    marks = await engine.read(lambda tx: tx.all("SELECT writer FROM write_marks"))
    assert 3 == len(marks)


async def test_what_the_database_refuses_is_not_explained_by_guessing(
    engine: PostgresEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidInput, match="too large"):
        await engine.read(lambda tx: tx.one("SELECT 9223372036854775807 + 1"))
    with pytest.raises(InvalidInput, match="the log says why"):
        await engine.read(lambda tx: tx.one("SELECT CAST('x' AS date)"))

    assert "invalid input syntax" in vars(caplog.records[-1])["error"]


async def test_text_that_cannot_be_stored_is_refused(engine: PostgresEngine) -> None:
    with pytest.raises(InvalidInput, match="U\\+0000"):
        await engine.write(lambda tx: put(tx, "a\0b"))


@pytest.mark.parametrize(
    ("sql", "expected", "names"),
    [
        ("SELECT :a, :b, :a", b"SELECT $1, $2, $1", ("a", "b")),
        ("SELECT ':a', x::text, :a_1", b"SELECT ':a', x::text, $1", ("a_1",)),
        ("a + inbox = :n AND +m.inbox = :n", b"a + inbox = $1 AND m.inbox = $1", ("n",)),
    ],
)
def test_named_parameters_become_numbers(sql: str, expected: bytes, names: tuple[str]) -> None:
    assert (expected, names) == connections.positional(sql)
