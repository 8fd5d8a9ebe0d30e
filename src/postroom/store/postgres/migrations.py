"""Creates the schema of a PostgreSQL database, or upgrades it, in one transaction.

One process migrates while the others wait.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import psycopg

from postroom.store.upgrade import (
    FOUND_INBOX,
    INDEXES,
    RENAMED,
    TABLES,
    VERSION,
    Schema,
    check_version,
    data_statements,
    renames,
)

SCHEMA = Schema(Path(__file__).with_name("schema.sql"))
PARTITIONS = 8
"""The number of partitions of a new database. An existing database keeps its number."""

_LOCK = 0x706F7374
"""The class of our advisory locks: 0 is held by a migration, 1 by a writer."""

MIGRATING, WRITING = (_LOCK, 0), (_LOCK, 1)

_UNDIVIDED = """
    SELECT c.relname FROM pg_partitioned_table p JOIN pg_class c ON c.oid = p.partrelid
     WHERE c.relnamespace = current_schema()::regnamespace
       AND NOT EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhparent = c.oid)
     ORDER BY c.relname
"""
_PARTITION_COUNT = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'messages'::regclass"
_COLUMNS = """
    SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')
       AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
"""
_DEPENDENTS = """
    SELECT relname, relkind FROM pg_class
     WHERE relnamespace = current_schema()::regnamespace AND starts_with(relname::text, $1::text)
       AND relkind IN ('r', 'i', 'I', 'S')
"""
_KINDS = {"r": "TABLE", "i": "INDEX", "I": "INDEX", "S": "SEQUENCE"}
_TRIGGERS = {"audit_stays": "audit_no_update", "audit_remains": "audit_no_delete"}


def migrate(connection: psycopg.Connection, partitions: int = PARTITIONS) -> None:
    """Upgrade the schema.

    Raises:
        TooNew: the database was made by a newer Postroom.
        TooOld: it was made by a version that this one cannot upgrade.
    """
    with connection.transaction():
        _wait_for_others(connection)
        version = _version(connection)
        if version == VERSION:
            return
        # an upgrade may change rows: writers wait
        connection.execute(f"SELECT pg_advisory_xact_lock({WRITING[0]}, {WRITING[1]})")
        if version == 0:
            _create(connection, partitions)
        else:
            check_version(version)
            _upgrade(connection, version)
        connection.execute("UPDATE schema_version SET version = $1", [VERSION])


def _wait_for_others(connection: psycopg.Connection) -> None:
    """Wait until no other process migrates, however long that takes."""
    limit = connection.execute("SHOW lock_timeout").fetchone()
    connection.execute("SET LOCAL lock_timeout = 0")
    connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATING[0]}, {MIGRATING[1]})")
    connection.execute("SELECT set_config('lock_timeout', $1, true)", limit)


def _version(connection: psycopg.Connection) -> int:
    found = connection.execute("SELECT to_regclass('schema_version')").fetchone()
    if found is None or found[0] is None:
        return 0
    row = connection.execute("SELECT version FROM schema_version").fetchone()
    return int(row[0]) if row else 0


def _create(connection: psycopg.Connection, partitions: int) -> None:
    connection.execute(SCHEMA.text.encode())
    _add_partitions(connection, partitions)
    connection.execute("INSERT INTO schema_version (version) VALUES (0)")
    connection.execute(
        "INSERT INTO metadata (name, value) VALUES ('secret', $1)", [secrets.token_bytes(32)]
    )


def _add_partitions(connection: psycopg.Connection, partitions: int) -> None:
    """Create the partitions of each table that has none."""
    for (table,) in connection.execute(_UNDIVIDED).fetchall():
        for part in range(partitions):
            values = f"MODULUS {partitions}, REMAINDER {part}"
            create = f"CREATE TABLE {table}_{part} PARTITION OF {table} FOR VALUES WITH ({values})"
            connection.execute(create.encode())


def _upgrade(connection: psycopg.Connection, version: int) -> None:
    if version < RENAMED:
        _rename(connection)
    additions = SCHEMA.additions(_columns(connection))
    # a trigger is renamed with its function
    _run(connection, (one for one in additions if not one.startswith("CREATE TRIGGER")))
    row = connection.execute(_PARTITION_COUNT).fetchone()
    _add_partitions(connection, row[0] if row else PARTITIONS)
    _run(connection, data_statements(version))


def _run(connection: psycopg.Connection, statements: Iterable[str]) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def _columns(connection: psycopg.Connection) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for table, column in connection.execute(_COLUMNS).fetchall():
        found[table].add(column)
    return found


def _rename(connection: psycopg.Connection) -> None:
    """Rename tables and columns, and the partitions, indexes and sequences of those tables."""
    known = _columns(connection)
    for table in FOUND_INBOX:
        _run(connection, (
            f"DROP TRIGGER {table}_find_inbox ON {table}",
            f"DROP FUNCTION {table}_find_inbox()",
            f"ALTER TABLE {table} ALTER COLUMN inbox DROP DEFAULT",
        ))  # fmt: skip
    for old, new in _TRIGGERS.items():
        _run(connection, (f"ALTER TRIGGER {old} ON audit RENAME TO {new}",))
        _run(connection, (f"ALTER FUNCTION {old}() RENAME TO {new}",))
    _run(connection, renames(known))
    for old, new in TABLES.items():
        for name, kind in connection.execute(_DEPENDENTS, [f"{old}_"]).fetchall():
            renamed = new + name.removeprefix(old)
            _run(connection, (f"ALTER {_KINDS[kind]} {name} RENAME TO {renamed}",))
    for old, new in INDEXES.items():
        _run(connection, (f"ALTER INDEX IF EXISTS {old} RENAME TO {new}",))
