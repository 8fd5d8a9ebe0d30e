"""The tables are made so that Citus can distribute them. `tests/cluster` runs on a cluster."""

from __future__ import annotations

import psycopg

from postroom.store.postgres.citus import DISTRIBUTED, REPLICATED

PARTITIONED = """
    SELECT relname FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind = 'p' AND NOT relispartition
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
     WHERE c.relname = ANY(%s) AND NOT t.tgisinternal
"""


def test_every_table_that_is_partitioned_by_inbox_is_distributed(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        partitioned = [row[0] for row in connection.execute(PARTITIONED).fetchall()]

    assert sorted(DISTRIBUTED) == sorted(partitioned)


def test_no_distributed_table_has_a_trigger(database_url: str) -> None:
    """Citus refuses such tables."""
    with psycopg.connect(database_url) as connection:
        assert [] == connection.execute(TRIGGERS, [[*DISTRIBUTED, *REPLICATED]]).fetchall()


def test_the_rows_of_a_message_lie_with_it(database_url: str) -> None:
    """All tables that name a message or a thread by its number follow the inbox, or an account."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(OF_MESSAGES).fetchall()

    assert {"bodies", "search_texts", "outbox", "attachments"} <= {row[0] for row in rows if row[1]}
    assert {"remote_messages", "pushes", "search_changes"} == {row[0] for row in rows if not row[1]}
