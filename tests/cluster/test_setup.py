"""A cluster is set up by the first start, by each upgrade, and again without effect."""

from __future__ import annotations

import psycopg
import pytest

from postroom.errors import MailError
from postroom.store.postgres import citus
from postroom.store.postgres.connection import connect
from postroom.store.postgres.engine import PostgresEngine
from postroom.store.postgres.migrations import PARTITIONS, migrate
from tests.servers.citus import Cluster

SHARDS = "SELECT shardid, logicalrelid::text, shardminvalue FROM pg_dist_shard ORDER BY shardid"
PLACES = """
    SELECT table_name::text, citus_table_type
      FROM citus_tables t JOIN pg_class c ON c.oid = t.table_name
     WHERE NOT c.relispartition
"""


def test_every_table_is_at_its_place(cluster_url: str) -> None:
    with psycopg.connect(cluster_url) as connection:
        placed = dict(connection.execute(PLACES).fetchall())

    assert set(citus.DISTRIBUTED) == {
        name for name, kind in placed.items() if kind == "distributed"
    }
    assert set(citus.REPLICATED) == {name for name, kind in placed.items() if kind == "reference"}


def test_the_set_up_can_be_repeated(cluster_url: str) -> None:
    with connect(cluster_url) as connection:
        before = connection.execute(SHARDS).fetchall()
        with connection.transaction():
            citus.distribute(connection)
        migrate(connection)

        assert before == connection.execute(SHARDS).fetchall()


def test_an_upgrade_distributes_the_tables_that_it_creates(cluster_url: str) -> None:
    with connect(cluster_url) as connection:
        connection.execute("DROP TABLE contacts")
        connection.execute("UPDATE schema_version SET version = version - 1")
        migrate(connection)

        assert not citus.is_incomplete(connection)
        assert [(1,)] == connection.execute(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'contacts'::regclass"
        ).fetchall()


async def test_an_installation_is_distributed_with_its_rows(cluster: Cluster) -> None:
    url = cluster.empty_database(with_workers=False)
    with connect(url) as connection:
        migrate(connection)
        connection.execute("INSERT INTO labels (inbox, name, folded) VALUES (7, 'New', 'new')")
    cluster.add_workers(url)
    engine = PostgresEngine.open(url)
    rows = await engine.read(lambda tx: tx.all("SELECT name FROM labels WHERE inbox = 7"))
    await engine.close()

    with connect(url) as connection:
        assert [("New",)] == rows
        assert not citus.is_incomplete(connection)
        assert [(PARTITIONS,)] == connection.execute(
            "SELECT count(*) FROM pg_inherits WHERE inhparent = 'labels'::regclass"
        ).fetchall()
    cluster.drop(url)


def test_a_role_that_cannot_recover_transactions_is_told_what_to_grant(cluster: Cluster) -> None:
    url = cluster.empty_database()
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "DO $$ BEGIN CREATE ROLE agent LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"
        )
        admin.execute(f"ALTER DATABASE {name} OWNER TO agent".encode())
        admin.execute("GRANT CREATE ON SCHEMA public TO agent")

    with pytest.raises(MailError, match="GRANT EXECUTE ON FUNCTION recover_prepared_transactions"):
        PostgresEngine.open(url.replace("postgres@", "agent@"))
    cluster.drop(url)
