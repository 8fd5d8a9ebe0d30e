"""The partitions that a query reads, according to PostgreSQL's query plan.

The planner may only choose which partitions to leave out, so that the result depends on the query
alone and not on the number of rows.
"""

from __future__ import annotations

import re

import psycopg
import pytest

from postroom.store.postgres import connection as connections

Statements = dict[bytes, list[object]]
PLAIN = (
    "enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_hashjoin",
    "enable_mergejoin", "enable_material", "enable_memoize",
)  # fmt: skip
"""Disabled planner features, so that a plan names every partition that may be needed."""


def record(patch: pytest.MonkeyPatch) -> Statements:
    """Record every statement that is run from now on, with the values of one call."""
    found: Statements = {}
    real, real_many = connections.PostgresTransaction._execute, connections.PostgresTransaction.many

    def execute(self, sql, params):
        statement, names = connections.positional(sql)
        found.setdefault(statement, [params[name] for name in names])
        return real(self, sql, params)

    def many(self, sql, rows):
        rows = list(rows)
        statement, names = connections.positional(sql)
        if rows:
            found.setdefault(statement, [rows[0][name] for name in names])
        return real_many(self, sql, rows)

    patch.setattr(connections.PostgresTransaction, "_execute", execute)
    patch.setattr(connections.PostgresTransaction, "many", many)
    return found


def crossing(url: str, statements: Statements) -> dict[str, set[str]]:
    """For each query, the tables of which it reads more than one partition."""
    found: dict[str, set[str]] = {}
    with connections.connect(url) as connection:
        for name in PLAIN:
            connection.execute(f"SET {name} = off".encode())
        for statement, values in statements.items():
            if not re.match(rb"\s*(SELECT|UPDATE|DELETE|INSERT)", statement):
                continue
            seen = set(re.findall(r" on (\w+)_(\d)\b", _plan(connection, statement, values)))
            several = {name for name, part in seen if {(name, "0"), (name, "1")} <= seen}
            if several:
                found[shown(statement)] = several
    return found


def shown(statement: bytes) -> str:
    """A query in one line, without its columns and values."""
    text = re.sub(r"\s+", " ", statement.decode()).strip()
    text = re.sub(r"^SELECT .*? FROM (?=\w)", "SELECT … FROM ", text)
    text = re.sub(r"IN \(\$\d+(, \$\d+)*\)", "IN (…)", text)
    return re.sub(r"\$\d+", "?", text)


def _plan(connection: psycopg.Connection, statement: bytes, values: list[object]) -> str:
    with connection.transaction(force_rollback=True):
        rows = connection.execute(b"EXPLAIN " + statement, values).fetchall()
    return "\n".join(row[0] for row in rows)
