"""SQLite knows not how full an inbox is: it must not look through it for a thread or a message."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from postroom.blobs.files import FileBlobs
from postroom.pipeline.services import Services
from postroom.store.sqlite import open_store
from postroom.store.sqlite.connection import SqliteTransaction
from tests.stores.test_shards import use_all_of_it

NARROW = re.compile(r"\b(thread|number|message|id) (= :|IN \(:)")
"""What names a few rows."""
WIDE = re.compile(
    r"USING (COVERING )?INDEX \w+ \((inbox=\?)( AND (is_hidden|date|last_date).*?)?\)"
)
"""An index that leads to all rows of an inbox."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, object]]:
    """Every statement that was run, with some values."""
    found: dict[str, dict[str, object]] = {}
    for name in ("all", "one", "run", "put"):
        monkeypatch.setattr(SqliteTransaction, name, _noting(name, found))
    return found


def _noting(name: str, found: dict[str, dict[str, object]]):
    real = getattr(SqliteTransaction, name)

    def noted(self, sql, /, **params):
        found.setdefault(sql, params)
        return real(self, sql, **params)

    return noted


async def test_a_thread_or_a_message_is_not_looked_for_in_all_of_its_inbox(
    asked: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    store = await open_store(tmp_path / "postroom.db")
    await use_all_of_it(Services(store=store, blobs=FileBlobs(tmp_path)))
    await store.close()

    connection = apsw.Connection(str(tmp_path / "postroom.db"))
    plans = {
        sql: str(connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall())
        for sql, values in asked.items()
        if NARROW.search(sql) and sql.split()[0] in ("SELECT", "UPDATE", "DELETE")
    }

    assert len(plans) > 50
    assert [] == [(sql, plan) for sql, plan in plans.items() if WIDE.search(plan)]
