"""The store on PostgreSQL."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from postroom.blocking import in_thread
from postroom.store.open import open_on
from postroom.store.postgres.connection import RETRY_S
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.store import Store


async def open_store(
    url: str, folder: Path, audit_key: bytes | None = None, *, patience_s: float = RETRY_S
) -> Store:
    """Connect, upgrade the schema, and return the store on it.

    Without an audit key, one is read from or created in a file of the folder; machines that share a
    database must share the key.
    """
    opening = partial(PostgresEngine.open, url, patience_s=patience_s)
    return await open_on(await in_thread(opening), folder, audit_key)
