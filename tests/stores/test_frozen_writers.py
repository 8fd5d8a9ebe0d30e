"""A writer that stops responding is terminated, a slow one is not, and each job is done once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from postroom.errors import Unavailable
from postroom.store.postgres import connection as connections
from postroom.store.postgres import engine as writers
from postroom.store.postgres import liveness
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.transaction import Transaction

PUT = "INSERT INTO metadata (name, value) VALUES (:name, :value)"
NAMES = "SELECT name FROM metadata WHERE name <> 'secret' ORDER BY name"
UNTIL_LOCKED = """
    DO $$ BEGIN
        WHILE NOT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711)
        LOOP PERFORM pg_sleep(0.02); END LOOP;
    END $$
"""
_MAX_S = 60


@pytest.fixture
async def engines(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[PostgresEngine, PostgresEngine]]:
    """The engines of two processes with short timeouts."""
    monkeypatch.setattr(connections, "_SESSION", "SET lock_timeout = '50ms'")
    monkeypatch.setattr(liveness, "STUCK_S", 0.3)
    first = PostgresEngine.open(database_url, patience_s=0.0)
    both = first, PostgresEngine.open(database_url, patience_s=0.0)
    for engine in both:
        engine._liveness.look_s = _MAX_S
    yield both
    for engine in both:
        await engine.close()


class HeldJob:
    """A job that runs until it is released, and counts its starts."""

    def __init__(self, engine: PostgresEngine, meanwhile: Callable[[Transaction, HeldJob], object]):
        self.attempts = 0
        self.is_inside, self.is_free = threading.Event(), threading.Event()
        self._meanwhile = meanwhile
        self.task = asyncio.ensure_future(engine.write(self._work))

    def _work(self, tx: Transaction) -> str:
        self.attempts += 1
        tx.run(PUT, name="slow", value=b"1")
        tx.one("SELECT 1")
        self.is_inside.set()
        self._meanwhile(tx, self)
        return str(tx.one("SELECT name FROM metadata WHERE name = 'slow'"))


def is_silent(tx: Transaction, holder: HeldJob) -> None:
    assert holder.is_free.wait(_MAX_S)


def asks_on(tx: Transaction, holder: HeldJob) -> None:
    while not holder.is_free.is_set():
        tx.one("SELECT 1 FROM pg_sleep(0.02)")


def runs_long(tx: Transaction, holder: HeldJob) -> None:
    """One statement that runs until an advisory lock of this number is taken."""
    tx.run(UNTIL_LOCKED)


def put(tx: Transaction) -> None:
    tx.run(PUT, name="other", value=b"1")


async def test_a_frozen_writer_is_terminated_and_its_job_is_done_when_it_wakes(
    engines: tuple[PostgresEngine, PostgresEngine],
) -> None:
    holder = HeldJob(engines[0], is_silent)
    assert await asyncio.to_thread(holder.is_inside.wait, _MAX_S)
    refused = 0

    async with asyncio.timeout(_MAX_S):
        while True:
            try:
                await engines[1].write(put)
                break
            except Unavailable:
                refused += 1
    holder.is_free.set()
    answer = await holder.task

    assert refused > 0
    assert ("('slow',)", 2) == (answer, holder.attempts)
    assert [("other",), ("slow",)] == await engines[1].read(lambda tx: tx.all(NAMES))


@pytest.mark.parametrize("meanwhile", [asks_on, runs_long])
async def test_a_slow_writer_is_not_terminated(
    engines: tuple[PostgresEngine, PostgresEngine],
    database_url: str,
    meanwhile: Callable[[Transaction, HeldJob], object],
) -> None:
    holder = HeldJob(engines[0], meanwhile)
    assert await asyncio.to_thread(holder.is_inside.wait, _MAX_S)

    for _ in range(12):
        with pytest.raises(Unavailable, match="busy"):
            await engines[1].write(put)
    holder.is_free.set()
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("SELECT pg_advisory_lock(4711)")
        answer = await holder.task

    assert ("('slow',)", 1) == (answer, holder.attempts)


def test_the_server_detects_a_lost_client_machine(database_url: str) -> None:
    with connections.connect(database_url) as connection:
        shown = [
            connection.execute(f"SHOW {name}".encode()).fetchone()
            for name in ("tcp_keepalives_idle", "tcp_keepalives_count", "tcp_user_timeout")
        ]

    assert [("10",), ("3",), ("20000",)] == shown


def test_writers_of_another_database_are_ignored(database_url: str) -> None:
    other = database_url.rpartition("/")[0] + "/postgres"
    with psycopg.connect(other, autocommit=True) as holder, connections.connect(database_url) as us:
        holder.execute(writers.LOCK)

        assert us.execute(liveness.HOLDER).fetchone() is None
