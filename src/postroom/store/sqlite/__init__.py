"""The store in one file: SQLite through apsw."""

from __future__ import annotations

from pathlib import Path

from postroom.blocking import in_thread
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.store import SqlStore


async def open_store(path: Path) -> SqlStore:
    """Open the database, bring its schema up to date, and return the store on it."""
    return SqlStore(await in_thread(SqliteEngine.open, path))
