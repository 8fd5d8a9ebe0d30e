"""Each SQLite table exists in PostgreSQL with the same columns."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from postroom.store.sqlite.connection import Role, connect
from postroom.store.sqlite.engine import migrate

COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
           coalesce(l.collname, '')
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
      LEFT JOIN pg_collation l ON l.oid = a.attcollation
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
       AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
"""
INDEXES = """
    SELECT c.relname, array_agg(a.attname ORDER BY k.place)
      FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
     CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(number, place)
      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
     WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition
     GROUP BY c.relname, i.indexrelid
"""
TYPES = {"INTEGER": "bigint", "TEXT": "text", "BLOB": "bytea", "REAL": "double precision"}
OURS = {"schema_version", "write_marks"}
WHOLE = {
    *("inbox_policies", "accounts", "automatic_replies", "drafts", "identities", "plan_items"),
    "daily_mail",
}
"""Tables with an inbox that are not partitioned; schema.sql says why."""


@pytest.fixture
def file(tmp_path: Path) -> dict[str, dict[str, tuple[str, bool]]]:
    """The tables of SQLite: each column with its type, and whether it is NOT NULL."""
    connection = connect(tmp_path / "schema.db", Role.WRITER)
    migrate(connection)
    names = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return {
        str(name): {
            str(row[1]): (TYPES[str(row[2])], bool(row[3] or row[5]))
            for row in connection.execute(f"PRAGMA table_info({name})").fetchall()
        }
        for (name,) in names
    }


def test_every_table_has_the_same_columns(
    file: dict[str, dict[str, tuple[str, bool]]], database_url: str
) -> None:
    server: dict[str, dict[str, tuple[str, bool]]] = {}
    collations = set()
    with psycopg.connect(database_url) as connection:
        for table, column, kind, is_needed, collation in connection.execute(COLUMNS).fetchall():
            if table not in OURS:
                server.setdefault(table, {})[column] = (kind, is_needed)
                collations |= {collation} if kind == "text" else set()

    assert file == server
    assert {"C"} == collations


def test_every_key_of_a_table_in_partitions_names_the_inbox(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        cut = {
            row[0]
            for row in connection.execute(
                "SELECT partrelid::regclass::text FROM pg_partitioned_table"
            ).fetchall()
        }
        unique = connection.execute(
            INDEXES.replace("NOT c.relispartition", "NOT c.relispartition AND i.indisunique")
        ).fetchall()

    assert {"messages", "threads", "thread_ids", "attachments", "events"} <= cut
    assert [] == [
        (table, names) for table, names in unique if table in cut and "inbox" not in names
    ]


def test_a_table_with_an_inbox_is_partitioned_or_an_exception(
    file: dict[str, dict[str, tuple[str, bool]]], database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT partrelid::regclass::text FROM pg_partitioned_table")
        cut = {row[0] for row in rows.fetchall()}

    needed = {name for name, columns in file.items() if columns.get("inbox", ("", False))[1]}
    assert needed - WHOLE == cut


def test_every_number_is_given_by_the_database(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
                  AND NOT c.relispartition AND a.attname = 'number'
                  AND NOT a.atthasdef AND a.attidentity = ''
                  AND EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid
                      AND i.indisprimary AND i.indkey[0] = a.attnum)"""
        ).fetchall()

    assert [] == rows
