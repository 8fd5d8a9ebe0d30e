"""Creates the schema of a SQLite file, or upgrades it, in one transaction."""

from __future__ import annotations

import secrets
from pathlib import Path

import apsw

from postroom.store.upgrade import (
    RENAMED,
    VERSION,
    Schema,
    check_version,
    data_statements,
    renames,
)

SCHEMA = Schema(Path(__file__).with_name("schema.sql"))
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
_DEPENDENTS = """
    SELECT type, name FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL
"""


def migrate(connection: apsw.Connection) -> None:
    """Upgrade the schema in one transaction, so that a kill leaves the old or the new one.

    Raises:
        TooNew: the database was made by a newer Postroom.
        TooOld: it was made by a version that this one cannot upgrade.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = int(connection.pragma("user_version") or 0)
        if version == VERSION:
            return
        if version == 0:
            _create(connection)
        else:
            check_version(version)
            _upgrade(connection, version)
        connection.pragma("user_version", VERSION)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _create(connection: apsw.Connection) -> None:
    connection.execute(SCHEMA.text)
    connection.execute(
        "INSERT INTO metadata (name, value) VALUES ('secret', :value)",
        {"value": secrets.token_bytes(32)},
    )


def _upgrade(connection: apsw.Connection, version: int) -> None:
    if version < RENAMED:
        _rename(connection)
    for statement in (*SCHEMA.additions(_columns(connection)), *data_statements(version)):
        connection.execute(statement)


def _columns(connection: apsw.Connection) -> dict[str, set[str]]:
    names = [str(row[0]) for row in connection.execute(_TABLES)]
    return {
        name: {str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})")}
        for name in names
    }


def _rename(connection: apsw.Connection) -> None:
    """Rename tables and columns; drop the indexes and triggers that the schema does not name."""
    for kind, name in connection.execute(_DEPENDENTS).fetchall():
        if str(name) not in SCHEMA:
            connection.execute(f"DROP {kind} {name}")
    for statement in renames(_columns(connection)):
        connection.execute(statement)
    _drop_defaults(connection)


def _drop_defaults(connection: apsw.Connection) -> None:
    """Drop the default of `inbox` in tables that are too large to be copied.

    The method is described at https://www.sqlite.org/lang_altertable.html#otheralter for changes
    that do not affect stored data.
    """
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        """UPDATE sqlite_schema SET sql = replace(sql, 'inbox INTEGER NOT NULL DEFAULT 0',
                                                  'inbox INTEGER NOT NULL')
            WHERE type = 'table'"""
    )
    connection.execute("PRAGMA writable_schema = RESET")
