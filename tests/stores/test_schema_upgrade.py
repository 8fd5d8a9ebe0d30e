"""An upgraded database has the schema of a new one, and all of its data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from postroom.errors import TooOld
from postroom.model.event import AuditQuery, AuditRecord
from postroom.model.page import Slice
from postroom.model.rule import Loss
from postroom.model.view import EVERYTHING
from postroom.store import postgres, sqlite
from postroom.store.maintenance.database_files import installation_of, secret_of
from postroom.store.postgres import connection as connections
from postroom.store.postgres.migrations import migrate as migrate_server
from postroom.store.sqlite.engine import migrate
from postroom.store.store import Store
from postroom.store.upgrade import COLUMNS, TABLES, VERSION
from tests.stores.memories import NOW
from tests.stores.old_stores import OLDEST, PARTITIONS, VERSIONS, OldStore, reset

Make = Callable[..., OldStore]
CATALOG = {
    "relations": """
        SELECT relname, relkind::text, coalesce(pg_get_expr(relpartbound, oid), '') FROM pg_class
         WHERE relnamespace = 'public'::regnamespace
    """,
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attidentity::text, coalesce(l.collname, ''),
               coalesce(pg_get_expr(d.adbin, d.adrelid), '')
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
          LEFT JOIN pg_collation l ON l.oid = a.attcollation
          LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
           AND a.attnum > 0 AND NOT a.attisdropped
    """,
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
         WHERE connamespace = 'public'::regnamespace
    """,
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "functions": """
        SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    """,
}


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Creates a database of an earlier version."""
    url = request.getfixturevalue("database_url") if request.param == "postgres" else ""
    return lambda version, **more: OldStore(version, tmp_path, url, **more)


async def opened(old: OldStore) -> Store:
    """Upgrade and open a database, as the program does."""
    if old.url:
        return await postgres.open_store(old.url, old.path.parent)
    return await sqlite.open_store(old.path)


def schema_of(path: Path) -> dict[str, Any]:
    """SQLite's description of each table, index and trigger; the SQL text may differ."""
    database = apsw.Connection(str(path))
    known = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
    found: dict[str, Any] = {}
    for kind, name, sql in database.execute(known).fetchall():
        if kind != "table":
            found[name] = " ".join(sql.replace('"', "").split())
            continue
        constraints = [
            tuple(database.execute(f"SELECT name, coll, key FROM pragma_index_xinfo('{row[1]}')"))
            for row in database.execute(f"PRAGMA index_list({name})").fetchall()
            if row[3] != "c"
        ]
        found[name] = (
            database.execute(f"PRAGMA table_xinfo({name})").fetchall(),
            sorted(constraints),
            [word in sql for word in ("AUTOINCREMENT", "WITHOUT ROWID")],
        )
    database.close()
    return found


def catalog_of(url: str) -> dict[str, set[Any]]:
    with psycopg.connect(url) as connection:
        return {
            name: set(connection.execute(query.encode()).fetchall())
            for name, query in CATALOG.items()
        }


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgraded_file_has_the_schema_of_a_new_one(tmp_path: Path, version: int) -> None:
    OldStore(version, tmp_path).open()
    new = apsw.Connection(str(tmp_path / "new.db"))
    migrate(new)
    new.close()

    assert schema_of(tmp_path / "new.db") == schema_of(tmp_path / "postroom.db")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgraded_server_has_the_schema_of_a_new_one(
    tmp_path: Path, database_url: str, version: int
) -> None:
    with connections.connect(OldStore(version, tmp_path, database_url).url) as connection:
        migrate_server(connection)
    upgraded = catalog_of(database_url)
    reset(database_url)
    with connections.connect(database_url) as connection:
        migrate_server(connection, PARTITIONS)

    assert catalog_of(database_url) == upgraded


def counted(old: OldStore) -> dict[str, int]:
    """The number of rows of each table of an old database."""
    tables = """
        SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
           AND relkind IN ('r', 'p') AND NOT relispartition
    """
    if not old.url:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    names = [str(row[0]) for row in old.all(tables)]
    return {name: int(old.all(f"SELECT count(*) FROM {name}")[0][0]) for name in names}


async def test_every_row_is_still_there(make: Make) -> None:
    old = make(OLDEST)
    before = counted(old)
    store = await opened(old)
    problems = await store.problems()
    await store.close()
    after = counted(old)

    assert () == problems
    gained = {
        *("mail_memories", "mail_memory_sources", "sends", "upgrade_losses"),
        *("mailboxes", "search_sets"),
    }
    lost = {"errands", "facts"}  # a job of a rule that was deleted; the mark of a readiness check
    for name, count in before.items():
        new = TABLES.get(name, name)
        if name == "mail_texts":
            assert new not in after
        elif name == "write_marks":  # those of yesterday are deleted
            assert after[new]
        elif name in lost:
            assert count - 1 <= after[new] <= count
        elif name in gained:
            assert count <= after[new]
        else:
            assert (name, count) == (name, after[new])


async def test_values_of_renamed_columns_are_the_same(make: Make) -> None:
    old = make(OLDEST)
    names = {new: old for old, new in TABLES.items()}
    before = {}
    for table, columns in COLUMNS.items():
        for column, renamed in columns.items():
            if table not in ("mail_memories", "rules", "plans", "sends", "rule_jobs", "webhooks"):
                rows = old.all(f"SELECT {column} FROM {names.get(table, table)}")
                before[f"SELECT {renamed} FROM {table}"] = sorted(rows, key=repr)
    old.open()

    assert before == {query: sorted(old.all(query), key=repr) for query in before}


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_audit_log_of_an_earlier_version_is_continued(make: Make, version: int) -> None:
    store = await opened(make(version))
    query = AuditQuery(EVERYTHING, EVERYTHING)
    before = await store.audit(query)
    await store.by(AuditRecord("owner", "rename_inbox", NOW, ("x",), via="cli")).record_audit()
    after = await store.audit(query)
    check = await store.check_audit()
    await store.close()

    assert (before.total + 1, ()) == (check.entries, check.problems)
    assert {None} == {entry.via for entry in before.rows}
    assert ["cli", None] == [entry.via for entry in after.rows[:2]]


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_upgraded_store_is_used_as_before(make: Make, version: int) -> None:
    store = await opened(make(version))
    inboxes = await store.inboxes(EVERYTHING, Slice(9))
    rules = await store.all_rules()
    losses = await store.upgrade_losses()
    name = await store.ensure_installation_id()
    found = await store.memory("default", "tea", now=NOW, history=True)
    await store.close()

    assert 5 == inboxes.total
    assert {"Invoices", "Tell", "Answer"} == {rule.name for rule in rules}
    assert [Loss("rule_job", "rul_gone", 1)] == list(losses)
    assert 32 == len(name)
    assert found is not None
    assert "Ana likes green tea." in repr(found)
    assert "Ana likes tea with milk and some sugar." in repr(found)


def test_an_upgrade_notes_which_mail_is_indexed(tmp_path: Path) -> None:
    old = OldStore(OLDEST, tmp_path, rows=False)
    old.run("INSERT INTO shelves (kind, name) VALUES ('mail', ''), ('memories', 'a')")
    old.run("INSERT INTO leaves (shelf, leaf, what, length) VALUES (1, 1, 9, 1), (1, 2, 4, 1)")
    old.run("INSERT INTO leaves (shelf, leaf, what, length) VALUES (2, 1, 5, 1)")

    old.open()

    spans = old.all("SELECT kind, oldest, newest FROM ranking_collections ORDER BY kind")
    assert [("mail", 4, 9), ("memories", None, None)] == spans


def test_a_file_names_its_installation_before_and_after_an_upgrade(tmp_path: Path) -> None:
    old = OldStore(OLDEST, tmp_path)
    before = (secret_of(old.path), installation_of(old.path))
    old.open()

    assert None not in before
    assert before == (secret_of(old.path), installation_of(old.path))


@pytest.mark.parametrize(
    ("version", "what_to_do"),
    [
        (1, "open it once with commit 564e61c"),
        (32, "open it once with commit 564e61c"),
        (39, "restore a backup of schema 33"),
    ],
)
def test_a_database_of_another_development_version_is_refused(
    make: Make, version: int, what_to_do: str
) -> None:
    old = make(OLDEST, rows=False)
    old.run(
        f"UPDATE public.schema_version SET version = {version}"
        if old.url
        else f"PRAGMA user_version = {version}"
    )

    with pytest.raises(TooOld, match=f"schema {version}.*{what_to_do}"):
        old.open()


KILLED_AT = """
import os, sys
from pathlib import Path
from postroom.store.sqlite.connection import Role, connect
from postroom.store.sqlite.engine import migrate
left = int(sys.argv[2])
def trace(cursor, sql, bindings):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)
    return True
connection = connect(Path(sys.argv[1]), Role.WRITER)
connection.exec_trace = trace
migrate(connection)
"""


@pytest.mark.parametrize("statements", [1, 10, 60, 130, 170, 200])
def test_a_kill_during_an_upgrade_leaves_the_old_file(tmp_path: Path, statements: int) -> None:
    old = OldStore(OLDEST, tmp_path)
    before = counted(old)
    line = [sys.executable, "-c", KILLED_AT, str(old.path), str(statements)]
    done = subprocess.run(line, check=False)

    assert -9 == done.returncode
    assert before == counted(old)
    assert [(OLDEST,)] == old.all("PRAGMA user_version")
    old.open()
    assert [(VERSION,)] == old.all("PRAGMA user_version")


def test_an_upgrade_of_a_server_that_fails_changes_nothing(
    tmp_path: Path, database_url: str
) -> None:
    old = OldStore(OLDEST, tmp_path, database_url)
    old.run("CREATE TABLE public.rule_jobs (number BIGINT)")
    before = catalog_of(database_url)

    with pytest.raises(psycopg.Error), connections.connect(database_url) as connection:
        migrate_server(connection)

    assert before == catalog_of(database_url)
    assert [(OLDEST,)] == old.all("SELECT version FROM public.schema_version")
