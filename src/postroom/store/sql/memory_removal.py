"""Memories that go: removed, expired, or without the mail they came from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from postroom.model.memory import shelf_of
from postroom.store.recall.shelves import drop_leaf, find_shelf
from postroom.store.sql import memory_links
from postroom.store.sql.memories import find_memory, is_over
from postroom.store.sql.values import seconds
from postroom.store.transaction import Transaction

OF_MEMORY = ("memory_versions", "memory_tags", "memory_links", "memory_ties", "memory_shingles")


def remove_memory(tx: Transaction, namespace: str, key: str, now: datetime) -> bool:
    """Remove a memory with its history."""
    shelf = find_shelf(tx, shelf_of(namespace))
    stored = find_memory(tx, shelf, key) if shelf is not None else None
    if shelf is None or stored is None:
        return False
    take_off_shelf(tx, shelf, stored.number)
    return not is_over(stored.memory, now)


def take_off_shelf(tx: Transaction, shelf: int, number: int) -> None:
    """Remove a memory with all that belongs to it, and from what is searched."""
    for table in OF_MEMORY:
        tx.run(f"DELETE FROM {table} WHERE memory = :memory", memory=number)
    tx.run("DELETE FROM memories WHERE number = :number", number=number)
    drop_leaf(tx, shelf, number)


def remove_expired(tx: Transaction, now: datetime, limit: int) -> int:
    """Remove memories whose time is over, some at a time."""
    rows = tx.all(
        """SELECT m.shelf, m.number FROM shelves s JOIN memories m ON m.shelf = s.number
            WHERE m.expires_at <= :now ORDER BY m.number LIMIT :limit""",
        now=seconds(now),
        limit=limit,
    )
    for shelf, number in rows:
        take_off_shelf(tx, shelf, number)
    return len(rows)


def forget_without_mail(tx: Transaction, numbers: Sequence[int]) -> None:
    """Let memories go, or mark them as stale, once the mail they were learnt from is gone."""
    for shelf, number in memory_links.without_mail(tx, numbers):
        take_off_shelf(tx, shelf, number)


def has_expired(tx: Transaction, now: datetime) -> bool:
    """Whether the time of some memory is over."""
    row = tx.one(
        """SELECT 1 FROM shelves s JOIN memories m ON m.shelf = s.number
            WHERE m.expires_at <= :now LIMIT 1""",
        now=seconds(now),
    )
    return row is not None
