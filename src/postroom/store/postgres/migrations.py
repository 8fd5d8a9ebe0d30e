"""The schema in numbered steps, each one transaction, made by one process while others wait."""

from __future__ import annotations

import secrets

import psycopg

from postroom.errors import TooNew
from postroom.store.postgres.schema import PARTITIONS, steps

_LOCK = 0x706F7374
"""Ours among the advisory locks: with 0 for migrations, with 1 for whoever writes."""

WRITE_MARKS = """
    CREATE TABLE write_marks (
        writer TEXT PRIMARY KEY, mark BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL DEFAULT now()
    )
"""
"""The last batch that each writer has committed."""

MIGRATING, WRITING = (_LOCK, 0), (_LOCK, 1)


def migrate(connection: psycopg.Connection, partitions: int = PARTITIONS) -> None:
    """Bring the schema up to date, step by step.

    Raises:
        TooNew: the database was made by a newer Postroom.
    """
    known = steps(partitions)
    while True:
        with connection.transaction():
            _wait_for_others(connection)
            version = _version(connection)
            if version >= len(known):
                break
            # a step may copy rows: who writes waits, who reads goes on
            connection.execute(f"SELECT pg_advisory_xact_lock({WRITING[0]}, {WRITING[1]})")
            for statement in known[version]:
                connection.execute(statement.encode())
            if version == 0:
                _make_secret(connection)
            connection.execute("UPDATE schema_version SET version = $1", [version + 1])
    if version > len(known):
        raise TooNew.of(version, len(known))


def _wait_for_others(connection: psycopg.Connection) -> None:
    """Wait until nobody else migrates, however long a step of theirs takes."""
    limit = connection.execute("SHOW lock_timeout").fetchone()
    connection.execute("SET LOCAL lock_timeout = 0")
    connection.execute(f"SELECT pg_advisory_xact_lock({MIGRATING[0]}, {MIGRATING[1]})")
    connection.execute("SELECT set_config('lock_timeout', $1, true)", limit)


def _version(connection: psycopg.Connection) -> int:
    found = connection.execute("SELECT to_regclass('schema_version')").fetchone()
    if found is None or found[0] is None:
        connection.execute("CREATE TABLE schema_version (version BIGINT NOT NULL)")
        connection.execute("INSERT INTO schema_version (version) VALUES (0)")
        connection.execute(WRITE_MARKS)
    row = connection.execute("SELECT version FROM schema_version").fetchone()
    return int(row[0]) if row else 0


def _make_secret(connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO facts (name, value) VALUES ('secret', $1)", [secrets.token_bytes(32)]
    )
