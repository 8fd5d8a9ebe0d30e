"""Where each table is on a Citus cluster, and what distributes them.

A database is on a cluster when it has the extension `citus` and worker nodes. All rows of an inbox
are on one worker. A few small tables that queries join with them are replicated to every node; they
are written seldom, because such a write needs all nodes. All other tables are on the coordinator.
"""

from __future__ import annotations

from typing import LiteralString

import psycopg

from postroom.errors import MailError

DISTRIBUTED = (
    "messages", "bodies", "search_texts", "message_labels", "message_mailboxes", "outbox",
    "threads", "thread_aliases", "thread_ids", "attachments", "mailboxes", "labels", "events",
    "removed_events", "contacts", "contact_skeletons", "search_buffer", "webhook_deliveries",
    "rule_jobs",
)  # fmt: skip
"""Distributed by inbox; the first determines which shards are on one node."""

REPLICATED = ("inboxes", "webhooks")

PARTITIONS, SHARDS = 1, 4
"""Of a new installation. Each table has partitions times shards parts, and each part costs time."""

PUBLISHED = "published_events_seq"
"""A sequence: all events up to its last value are committed on every node."""

_IS_CLUSTER = "SELECT 1 FROM pg_extension WHERE extname = 'citus'"
_WORKERS = "SELECT count(*) FROM pg_dist_node WHERE groupid > 0 AND noderole = 'primary'"
_KNOWN = "SELECT logicalrelid::regclass::text FROM pg_dist_partition"
_MAY_RECOVER = "SELECT has_function_privilege('recover_prepared_transactions()', 'EXECUTE')"


def is_cluster(connection: psycopg.Connection) -> bool:
    """Whether the database is the coordinator of a cluster with workers."""
    if connection.execute(_IS_CLUSTER).fetchone() is None:
        return False
    workers = connection.execute(_WORKERS).fetchone()
    return workers is not None and workers[0] > 0


def is_incomplete(connection: psycopg.Connection) -> bool:
    """Whether a table is not where it belongs."""
    return not {*DISTRIBUTED, *REPLICATED, "write_marks"} <= _known(connection)


def distribute(connection: psycopg.Connection) -> None:
    """Distribute the tables that are not distributed yet.

    Raises:
        MailError: our role may not recover prepared transactions.
    """
    allowed = connection.execute(_MAY_RECOVER).fetchone()
    if allowed is None or not allowed[0]:
        raise MailError(
            "on Citus, Postroom recovers its transactions; run as a superuser on the coordinator: "
            "GRANT EXECUTE ON FUNCTION recover_prepared_transactions() TO <role>"
        )
    known = _known(connection)
    connection.execute("SET LOCAL citus.multi_shard_modify_mode = 'sequential'")
    for name in REPLICATED:
        _place(connection, known, name, "create_reference_table($1)")
    first, *others = DISTRIBUTED
    shards = f"shard_count => {SHARDS}, colocate_with => 'none'"
    _place(connection, known, first, f"create_distributed_table($1, 'inbox', {shards})")
    for name in others:
        together = f"create_distributed_table($1, 'inbox', colocate_with => '{first}')"
        _place(connection, known, name, together)
    # A write to this table, which is part of every batch, makes Citus commit in two phases.
    _place(connection, known, "write_marks", "citus_add_local_table_to_metadata($1)")
    connection.execute(f"CREATE SEQUENCE IF NOT EXISTS {PUBLISHED}".encode())


def _known(connection: psycopg.Connection) -> set[str]:
    return {row[0] for row in connection.execute(_KNOWN).fetchall()}


def _place(
    connection: psycopg.Connection, known: set[str], name: str, how: LiteralString | str
) -> None:
    if name not in known:
        connection.execute(f"SELECT {how}".encode(), [name])
