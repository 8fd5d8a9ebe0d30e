"""The store on a PostgreSQL server: the same functions, the same answers."""

from __future__ import annotations

from pathlib import Path

from postroom.blocking import in_thread
from postroom.store.opening import open_on
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.store import SqlStore


async def open_store(url: str, folder: Path, audit_key: bytes | None = None) -> SqlStore:
    """Connect, bring the schema up to date, and return the store on it.

    Without a key for the audit log, one is kept in a file of the folder; machines that share a
    database must share the key.
    """
    return await open_on(await in_thread(PostgresEngine.open, url), folder, audit_key)
