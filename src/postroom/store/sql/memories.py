"""Memories, found by their keys, with the versions before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from postroom.model.memory import Link, Memory, MemoryVersion, shelf_of, summary_of
from postroom.store.recall.shelves import find_shelf
from postroom.store.sql import memory_links
from postroom.store.sql.values import from_text, moment
from postroom.store.transaction import Row, Transaction

COLUMNS = """
    m.number, s.name, m.key, m.summary, m.text, m.tags, m.trust, m.is_owners, m.version,
    m.is_stale, m.expires_at, m.created_at, m.updated_at
"""
TABLES = "memories m JOIN shelves s ON s.number = m.shelf"
FIND = f"SELECT {COLUMNS} FROM {TABLES} WHERE m.shelf = :shelf AND m.key = :key"
HISTORY = """
    SELECT version, summary, text, tags, trust, updated_at FROM memory_versions
     WHERE memory = :memory ORDER BY version DESC LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory as it stands in the table. A summary of None follows the text.

    `is_owners` if the owner wrote any version of it.
    """

    number: int
    summary: str | None
    text: str
    tags: tuple[str, ...]
    links: tuple[Link, ...]
    is_owners: bool
    memory: Memory


def find_memory(tx: Transaction, shelf: int, key: str) -> Stored | None:
    """What a shelf has under a key, even if its time is over."""
    row = tx.one(FIND, shelf=shelf, key=key)
    if row is None:
        return None
    links = memory_links.links_of(tx, row[0])
    memory = memory_of(row, links)
    return Stored(row[0], row[3], row[4], memory.tags, links, bool(row[7]), memory)


def memory_of(row: Row, links: tuple[Link, ...]) -> Memory:
    """A memory of its row."""
    return Memory(
        namespace=row[1],
        key=row[2],
        summary=summary_of(row[4]) if row[3] is None else row[3],
        text=row[4],
        tags=tuple(from_text(row[5])),
        links=links,
        trust=row[6],
        version=row[8],
        expires_at=None if row[10] is None else moment(row[10]),
        created_at=moment(row[11]),
        updated_at=moment(row[12]),
        stale=bool(row[9]) or None,
    )


def is_over(memory: Memory, now: datetime) -> bool:
    """Whether the time of a memory is over."""
    return memory.expires_at is not None and memory.expires_at <= now


def get_memory(
    tx: Transaction, namespace: str, key: str, now: datetime, *, history: int = 0
) -> Memory | None:
    """A memory by its key, with so many of its older versions."""
    shelf = find_shelf(tx, shelf_of(namespace))
    stored = find_memory(tx, shelf, key) if shelf is not None else None
    if stored is None or is_over(stored.memory, now):
        return None
    if not history:
        return stored.memory
    rows = tx.all(HISTORY, memory=stored.number, limit=history)
    return replace(stored.memory, history=tuple(_version(row) for row in rows))


def _version(row: Row) -> MemoryVersion:
    summary = summary_of(row[2]) if row[1] is None else row[1]
    tags = tuple(from_text(row[3]))
    return MemoryVersion(row[0], summary, row[2], tags, row[4], moment(row[5]))
