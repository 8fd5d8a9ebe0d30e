"""The store on a PostgreSQL server: the same functions, the same answers."""

from __future__ import annotations

from postroom.blocking import in_thread
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.store import SqlStore


async def open_store(url: str) -> SqlStore:
    """Connect, bring the schema up to date, and return the store on it."""
    return SqlStore(await in_thread(PostgresEngine.open, url))
