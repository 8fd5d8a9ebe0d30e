"""The store on SQLite, through apsw."""

from __future__ import annotations

from pathlib import Path

from postroom.blocking import in_thread
from postroom.store.open import open_on
from postroom.store.sqlite.engine import SqliteEngine
from postroom.store.store import Store


async def open_store(path: Path, audit_key: bytes | None = None) -> Store:
    """Open the database, upgrade its schema, and return the store on it.

    Without an audit key, one is read from or created in a file beside the database.
    """
    return await open_on(await in_thread(SqliteEngine.open, path), path.parent, audit_key)
