"""Small transactions for tests of the PostgreSQL engine."""

from __future__ import annotations

from postroom.store.postgres.engine import PostgresEngine
from postroom.store.transaction import Transaction

PUT = "INSERT INTO metadata (name, value) VALUES (:name, :value)"
SLEEPERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def put(tx: Transaction, name: str) -> None:
    tx.run(PUT, name=name, value=b"1")


async def names(engine: PostgresEngine) -> list[str]:
    rows = await engine.read(lambda tx: tx.all("SELECT name FROM metadata ORDER BY name"))
    return [row[0] for row in rows if row[0] != "secret"]
