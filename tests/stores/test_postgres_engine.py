"""The PostgreSQL engine: shared commits, failures that stay apart, and what it refuses."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from postroom.errors import InvalidInput, Unstorable
from postroom.store.postgres import connection as connections
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.transaction import Transaction
from tests.stores.engines import PUT, names, put


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
