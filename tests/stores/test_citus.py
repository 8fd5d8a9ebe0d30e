"""The script for Citus says of every table where it goes."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "citus.sql"
TABLES = """
    SELECT relname, relkind = 'p' FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
OF_MESSAGES = """
    SELECT DISTINCT c.relname, c.relkind = 'p' FROM pg_class c JOIN pg_attribute a
        ON a.attrelid = c.oid AND a.attname IN ('message', 'thread')
       AND format_type(a.atttypid, NULL) = 'bigint'
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
       AND NOT c.relispartition
"""
TRIGGERS = """
    SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
     WHERE c.relkind = 'p' AND NOT c.relispartition AND NOT t.tgisinternal
"""


def test_every_table_has_a_place(database_url: str) -> None:
    script = SCRIPT.read_text()
    with psycopg.connect(database_url) as connection:
        is_cut = dict(connection.execute(TABLES).fetchall())

    distributed = re.findall(r"create_distributed_table\('(\w+)', 'inbox'", script)
    copied = re.findall(r"create_reference_table\('(\w+)'", script)
    staying = script.partition("-- Stay on the coordinator.\n")[2]
    left = [
        name
        for line in staying.splitlines()
        for name in line.removeprefix("--").rpartition("  ")[2].split()
        if name in is_cut
    ]

    assert sorted(name for name, cut in is_cut.items() if cut) == sorted(distributed)
    assert sorted(is_cut) == sorted([*distributed, *copied, *left])
    told = " ".join((ROOT / "docs" / "how-to" / "operations.md").read_text().split())
    assert f"{len(distributed)} tables follow the inbox, {len(copied)} small ones" in told


def test_no_distributed_table_has_a_trigger(database_url: str) -> None:
    """Citus refuses such tables."""
    with psycopg.connect(database_url) as connection:
        assert [] == connection.execute(TRIGGERS).fetchall()


def test_the_rows_of_a_message_lie_with_it(database_url: str) -> None:
    """All tables that name a message or a thread by its number follow the inbox, or an account."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(OF_MESSAGES).fetchall()

    assert {"bodies", "search_texts", "outbox", "attachments"} <= {row[0] for row in rows if row[1]}
    assert {"remote_messages", "pushes", "search_changes"} == {row[0] for row in rows if not row[1]}
