"""Lengths of queues, sizes and leases, for the page Health; each query is bounded."""

from __future__ import annotations

from datetime import datetime

from postroom.model.health import Lease, QueueLength, StorageSizes
from postroom.store.sql.messages.message_reads import count_messages
from postroom.store.sql.values import moment, scalar, seconds
from postroom.store.transaction import Engine, Transaction

MAX_COUNTED = 10_000
_QUEUES = {
    "outbox": "outbox WHERE state IN ('waiting', 'claimed', 'handing_over')",
    "webhook deliveries": "webhook_deliveries WHERE status = 'pending'",
    "jobs of rules": "rule_jobs WHERE state = 'waiting'",
    "changes for providers": "pushes",
    "mail to index": "search_buffer",
    "texts to embed": "ranking_documents WHERE vector IS NULL",
}
_LEASES = "SELECT name, holder, until FROM leases WHERE until > :now ORDER BY name LIMIT 200"


def queue_lengths(tx: Transaction) -> list[QueueLength]:
    """How much waits in each queue; counting stops at 10,000."""
    return [_length(tx, name, rows) for name, rows in _QUEUES.items()]


def _length(tx: Transaction, name: str, rows: str) -> QueueLength:
    sql = f"SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT :most) counted"
    waiting = int(scalar(tx, sql, most=MAX_COUNTED + 1))
    return QueueLength(name, min(waiting, MAX_COUNTED), is_more=waiting > MAX_COUNTED)


def sizes(tx: Transaction, engine: Engine) -> StorageSizes:
    """How large the database and the search index are, and how many messages there are."""
    index_bytes = int(scalar(tx, "SELECT coalesce(sum(bytes), 0) FROM search_segments"))
    return StorageSizes(*engine.size(tx), index_bytes, count_messages(tx))


def leases(tx: Transaction, now: datetime) -> list[Lease]:
    """Who does which background work, and which processes are running."""
    rows = tx.all(_LEASES, now=seconds(now))
    return [Lease(name, holder, moment(until)) for name, holder, until in rows]
