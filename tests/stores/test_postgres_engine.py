"""The PostgreSQL engine: shared commits, isolated failures, caches, and refusals."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

from postroom.errors import Conflict, InvalidInput, Unstorable
from postroom.store.postgres import connection as connections
from postroom.store.postgres import engine as writers
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.transaction import Transaction, remembered
from tests.stores.engines import PUT, names, put

WAITING = """
    SELECT 1 FROM pg_locks JOIN pg_database d ON d.oid = database
     WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
"""


def until_somebody_waits(admin: psycopg.Connection) -> None:
    while not admin.execute(WAITING).fetchone():
        time.sleep(0.01)


async def test_a_failing_job_does_not_affect_others_in_its_commit(engine: PostgresEngine) -> None:
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


async def test_a_reader_sees_one_snapshot(engine: PostgresEngine, database_url: str) -> None:
    def twice(tx: Transaction) -> tuple[object, object]:
        before = tx.one("SELECT count(*) FROM metadata")
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("INSERT INTO metadata (name, value) VALUES ('new', '')")
        return before, tx.one("SELECT count(*) FROM metadata")

    before, after = await engine.read(twice)

    assert before == after
    assert ["new"] == await names(engine)


def count(tx: Transaction) -> tuple[int, int]:
    """The cached count and the real one."""
    now = tx.all("SELECT 1 FROM metadata WHERE value = ''")
    return len(remembered(tx, "facts", lambda: now)), len(now)


async def test_cached_reads_are_valid_until_any_commit(
    engine: PostgresEngine, database_url: str
) -> None:
    async def counts() -> set[tuple[int, int]]:
        return {await engine.read(count) for _ in range(9)}

    with psycopg.connect(database_url) as first, psycopg.connect(database_url) as second:
        before = await counts()
        await engine.write(lambda tx: tx.run(PUT, name="ours", value=b""))
        ours = await counts()
        for number, other in enumerate((first, second)):
            other.execute(
                """
                INSERT INTO metadata (name, value) VALUES (%s, '')
            """,
                [f"theirs {number}"],
            )
        under_way = await counts()
        second.commit()
        one = await counts()
        first.commit()
        both = await counts()

    assert [{(n, n)} for n in (0, 1, 1, 2, 3)] == [before, ours, under_way, one, both]


async def test_a_cached_query_is_run_once_between_writes(engine: PostgresEngine) -> None:
    asked = []

    def ask(tx: Transaction) -> None:
        remembered(tx, "question", lambda: asked.append(1))

    for _ in range(99):
        await engine.read(ask)

    assert 1 <= len(asked) < 20  # the server may run autovacuum meanwhile


async def test_a_reader_of_an_older_snapshot_gets_its_own_values(
    engine: PostgresEngine, database_url: str
) -> None:
    def across(tx: Transaction) -> tuple[int, int]:
        tx.all("SELECT 1")
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("INSERT INTO metadata (name, value) VALUES ('new', '')")
            asyncio.run_coroutine_threadsafe(engine.read(count), loop).result(60)
        return count(tx)

    loop = asyncio.get_running_loop()

    assert (0, 0) == await engine.read(across)
    assert (1, 1) == await engine.read(count)


async def test_a_crash_that_reuses_transaction_ids_is_detected(
    engine: PostgresEngine, database_url: str
) -> None:
    """The server ends recovery with a checkpoint, so any new checkpoint invalidates the cache."""
    asked = []

    def ask(tx: Transaction) -> None:
        remembered(tx, "question", lambda: asked.append(1))

    await engine.read(ask)
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("CHECKPOINT")
    await engine.read(ask)

    assert 2 == len(asked)


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
async def test_writers_wait_during_a_migration_and_then_fail(
    engine: PostgresEngine, database_url: str, level: str
) -> None:
    name = database_url.rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
        other = await asyncio.to_thread(PostgresEngine.open, database_url)
        other.guard()
        admin.execute(writers.LOCK)
        late = asyncio.create_task(other.write(lambda tx: put(tx, "late")))
        await asyncio.to_thread(until_somebody_waits, admin)
        admin.execute("INSERT INTO metadata (name, value) VALUES ('migrated', 'token folder')")
        admin.execute("COMMIT")

    with pytest.raises(Conflict, match="migrated to another folder"):
        await late
    assert ["migrated"] == await names(other)
    await other.close()


async def test_writes_do_not_use_the_cache(engine: PostgresEngine) -> None:
    assert (await engine.write(lambda tx: tx.remembered)) is None


async def test_marks_of_exited_processes_are_deleted(
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


async def test_errors_of_the_database_are_reported_as_they_are(
    engine: PostgresEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidInput, match="too large"):
        await engine.read(lambda tx: tx.one("SELECT 9223372036854775807 + 1"))
    with pytest.raises(InvalidInput, match="see the log"):
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
