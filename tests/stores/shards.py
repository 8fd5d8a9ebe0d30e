"""Which partitions a query looks into, as PostgreSQL plans it.

The planner is left no choice but which partitions to leave out, so that the answer depends on the
query alone and not on how full the tables are.
"""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from postroom.store.postgres import connection as connections

GOLDEN = Path(__file__).parents[1] / "golden" / "shards.txt"
HEAD = """\
# Queries that look into every partition: on several machines, each would ask all of them.
# Every test of a store that runs on PostgreSQL looks for others. To write the list anew, remove it
# and run `pytest tests/stores --update-golden`.
"""
_CLAIMED = r"(outbox( o\b.*)?|rule_jobs( e .*)?|webhook_deliveries( d .*)?) WHERE .*(state|status) "
_INDEXED = r"search_buffer|messages ORDER BY number DESC|m\.number IN .*BY m\.number$"
_MISSING = r"y\.number IS NULL|NOT EXISTS \(SELECT|LEFT JOIN \(SELECT thread"
_CHECKED = rf"{_MISSING}|FROM messages$|parser_version = |BETWEEN"
REASONS = (
    ("`verify` reads everything", _CHECKED),
    ("a blob belongs to no inbox", r"\braw (IN|>)"),
    ("only an id is given", r"\b(id|message) (= \?|>= \?|IN \(…\))"),
    ("events have one order in the whole installation", r"FROM events e"),
    ("a webhook receives events of several inboxes", r"FROM webhook_deliveries .*webhook = \?"),
    ("jobs are claimed across all inboxes", f"{_CLAIMED}|{_INDEXED}|parser_version <"),
    (
        "ranked mail is one collection for the whole installation",
        r"m\.number = \?|messages WHERE number ([<>] \? ORDER|IN)",
    ),
    ("the request covers all inboxes", r"1 = 1|IS NOT NULL|m\.number IN|message IN"),
)
"""Why a query may look everywhere, and how such a query is told; the first that fits counts."""

Statements = dict[bytes, list[object]]
PLAIN = (
    "enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan", "enable_hashjoin",
    "enable_mergejoin", "enable_material", "enable_memoize",
)  # fmt: skip
"""What the planner must do without: then a plan names every partition that may be needed."""


def record(patch: pytest.MonkeyPatch) -> Statements:
    """Every statement that is run from now on, with some values."""
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


def crossing(url: str, asked: Statements) -> dict[str, set[str]]:
    """For each query, the tables of which more than one partition is looked at."""
    found: dict[str, set[str]] = {}
    with connections.connect(url) as connection:
        for name in PLAIN:
            connection.execute(f"SET {name} = off".encode())
        for statement, values in asked.items():
            if not re.match(rb"\s*(SELECT|UPDATE|DELETE|INSERT)", statement):
                continue
            seen = set(re.findall(r" on (\w+)_(\d)\b", _plan(connection, statement, values)))
            several = {name for name, part in seen if {(name, "0"), (name, "1")} <= seen}
            if several:
                found[shown(statement)] = several
    return found


def lines(found: dict[str, set[str]]) -> list[str]:
    """What is golden of it."""
    return sorted(f"{', '.join(sorted(tables))}: {sql}" for sql, tables in found.items())


def golden() -> list[str]:
    """The queries that are known to look into every partition."""
    text = GOLDEN.read_text() if GOLDEN.exists() else ""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def reason_of(line: str) -> str | None:
    """Why this query may look everywhere."""
    return next((reason for reason, sign in REASONS if re.search(sign, line)), None)


class Known:
    """The queries that are known to ask every shard; each statement is looked at once."""

    def __init__(self, *, is_updated: bool) -> None:
        self._golden = set(golden())
        self._seen: set[bytes] = set()
        self._is_updated = is_updated

    def unknown(self, url: str, asked: Statements) -> list[str]:
        """Those of the statements that ask every shard, and are not known to."""
        new = {sql: values for sql, values in asked.items() if sql not in self._seen}
        self._seen |= new.keys()
        found = set(lines(crossing(url, new))) - self._golden
        if self._is_updated:
            self._golden |= found
            return []
        return sorted(found)

    def write(self) -> None:
        """Keep what was found, by its reason."""
        if not self._is_updated or not self._seen:
            return
        by_reason: dict[str, list[str]] = {}
        for line in sorted(self._golden):
            by_reason.setdefault(reason_of(line) or "WHY?", []).append(line)
        parts = [f"\n# {reason}:\n" + "\n".join(by_reason[reason]) for reason in sorted(by_reason)]
        GOLDEN.write_text(HEAD + "\n".join(parts) + "\n")


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
