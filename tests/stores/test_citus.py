"""The script for Citus says of every table where it goes."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

SCRIPT = Path(__file__).parents[2] / "deploy" / "citus.sql"
TABLES = """
    SELECT relname, relkind = 'p' FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
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
