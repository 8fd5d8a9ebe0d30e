"""The id of the installation, leases on background work, and the figures of the page Health."""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.model.health import Lease, QueueLength, StorageSizes
from postroom.store.sql.messages.message_reads import count_messages
from postroom.store.sql.statements import exists, insert, moment, scalar, seconds
from postroom.store.transaction import Engine, Transaction


def installation_id(tx: Transaction) -> str | None:
    """The id; None if it has none yet."""
    row = tx.one("SELECT value FROM metadata WHERE name = 'installation'")
    return bytes(row[0]).decode() if row else None


def set_installation_id(tx: Transaction, new: str) -> str:
    """Set the id of the installation unless it has one; return the id it has."""
    insert(tx, "metadata", " ON CONFLICT DO NOTHING", name="installation", value=new.encode())
    found = installation_id(tx)
    assert found is not None
    return found


def replace_installation_id(tx: Transaction, new: str) -> None:
    tx.run("DELETE FROM metadata WHERE name = 'installation'")
    insert(tx, "metadata", name="installation", value=new.encode())


def installation_secret(tx: Transaction) -> bytes:
    """The random secret of this store."""
    row = tx.one("SELECT value FROM metadata WHERE name = 'secret'")
    return bytes(row[0]) if row else b""


def ping(tx: Transaction) -> None:
    """Write something: a store that can only be read is not ready."""
    tx.run("DELETE FROM metadata WHERE name = 'ping'")
    insert(tx, "metadata", name="ping", value=b"\x01")


CLAIM = """
    INSERT INTO leases (name, holder, until) VALUES (:name, :holder, :until)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
     WHERE leases.until <= :now OR leases.holder = excluded.holder
"""

OF_ROLE = "name > :role || ' ' AND name < :role || '!'"
"""A name is the role, a space and the holder; "!" is the character after a space."""


def claim(tx: Transaction, name: str, holder: str, *, now: datetime, lifetime: timedelta) -> bool:
    """Acquire or renew a lease; False while another holder has it."""
    until = seconds(now + lifetime)
    return tx.run(CLAIM, name=name, holder=holder, now=seconds(now), until=until) > 0


def release(tx: Transaction, name: str, holder: str) -> None:
    """Release a lease before it expires."""
    tx.run("DELETE FROM leases WHERE name = :name AND holder = :holder", name=name, holder=holder)


def remove_expired_leases(tx: Transaction, now: datetime) -> None:
    tx.run("DELETE FROM leases WHERE until <= :now", now=seconds(now))


def add_heartbeat(
    tx: Transaction, role: str, holder: str, *, now: datetime, lifetime: timedelta
) -> None:
    """Insert or renew a heartbeat; a new one also removes the expired heartbeats of its role."""
    name = f"{role} {holder}"
    is_known = exists(tx, "SELECT 1 FROM leases WHERE name = :name", name=name)
    claim(tx, name, holder, now=now, lifetime=lifetime)
    if not is_known:
        tx.run(f"DELETE FROM leases WHERE {OF_ROLE} AND until <= :now", role=role, now=seconds(now))
        tx.announce("heartbeats")


def end_heartbeat(tx: Transaction, role: str, holder: str) -> None:
    release(tx, f"{role} {holder}", holder)
    tx.announce("heartbeats")


def has_heartbeat(tx: Transaction, role: str, now: datetime) -> bool:
    """Whether any process has a heartbeat for a role."""
    sql = f"SELECT 1 FROM leases WHERE {OF_ROLE} AND until > :now LIMIT 1"
    return exists(tx, sql, role=role, now=seconds(now))


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
