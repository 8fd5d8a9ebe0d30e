"""Memories: read by key and in lists, written in versions, removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from postroom.model.memory import (
    Link,
    Memory,
    MemoryQuery,
    MemoryRow,
    MemoryVersion,
    NamespaceRow,
    Namespaces,
    collection_of,
    summary_of,
)
from postroom.model.page import Found, Slice
from postroom.model.values import dataclass
from postroom.store.ranking.index import find_collection, unindex_document
from postroom.store.sql.memories import mail_texts, memory_links
from postroom.store.sql.statements import (
    Conditions,
    Listing,
    exists,
    from_text,
    moment,
    moment_or_none,
    page_of,
    seconds,
)
from postroom.store.transaction import Row, Transaction

COLUMNS = """
    m.number, s.name, m.key, m.summary, m.text, m.tags, m.trust, m.written_by_owner, m.version,
    m.is_stale, m.expires_at, m.created_at, m.updated_at
"""
TABLES = "memories m JOIN ranking_collections s ON s.number = m.collection"
_LISTING = Listing(
    COLUMNS, TABLES, "m.updated_at, m.number", is_newest_first=True, counted="memories m"
)
FIND = f"SELECT {COLUMNS} FROM {TABLES} WHERE m.collection = :collection AND m.key = :key"
HISTORY = """
    SELECT version, summary, text, tags, trust, updated_at FROM memory_versions
     WHERE memory = :memory ORDER BY version DESC LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory row.

    A summary of None is derived from the text. `is_owners` is set if the owner wrote any version.
    """

    number: int
    summary: str | None
    is_owners: bool
    memory: Memory


def find_memory(tx: Transaction, collection: int, key: str) -> Stored | None:
    """The memory under a key of a collection, even if it has expired."""
    row = tx.one(FIND, collection=collection, key=key)
    if row is None:
        return None
    memory = memory_of(row, memory_links.links_of(tx, row[0]))
    return Stored(row[0], row[3], bool(row[7]), memory)


def memory_of(row: Row, links: tuple[Link, ...]) -> Memory:
    """Convert a row to a memory."""
    return Memory(
        namespace=row[1],
        key=row[2],
        summary=summary_of(row[4]) if row[3] is None else row[3],
        text=row[4],
        tags=tuple(from_text(row[5])),
        links=links,
        trust=row[6],
        version=row[8],
        expires_at=moment_or_none(row[10]),
        created_at=moment(row[11]),
        updated_at=moment(row[12]),
        stale=bool(row[9]) or None,
    )


def is_expired(memory: Memory, now: datetime) -> bool:
    return memory.expires_at is not None and memory.expires_at <= now


def get_memory(
    tx: Transaction, namespace: str, key: str, now: datetime, *, history: int = 0
) -> Memory | None:
    """A memory by its key, with a number of its older versions."""
    collection = find_collection(tx, collection_of(namespace))
    stored = find_memory(tx, collection, key) if collection is not None else None
    if stored is None or is_expired(stored.memory, now):
        return None
    if not history:
        return stored.memory
    rows = tx.all(HISTORY, memory=stored.number, limit=history)
    return replace(stored.memory, history=tuple(_version(row) for row in rows))


def _version(row: Row) -> MemoryVersion:
    summary = summary_of(row[2]) if row[1] is None else row[1]
    tags = tuple(from_text(row[3]))
    return MemoryVersion(row[0], summary, row[2], tags, row[4], moment(row[5]))


def conditions_of(tx: Transaction, collection: int, query: MemoryQuery) -> Conditions:
    """The filters of a list or a search, on the table `m`."""
    where = Conditions()
    where.add("m.collection = :collection", collection=collection)
    where.add("(m.expires_at IS NULL OR m.expires_at > :now)", now=seconds(query.now))
    for position, tag in enumerate(query.tags):
        where.add(
            f"""EXISTS (SELECT 1 FROM memory_tags t
                 WHERE t.memory = m.number AND t.tag = :tag{position})""",
            **{f"tag{position}": tag},
        )
    if query.linked_to is not None:
        where.add(
            "m.number IN (SELECT memory FROM memory_links WHERE target = :target)",
            target=memory_links.target_of(tx, query.linked_to),
        )
    if query.since is not None:
        where.add("m.updated_at >= :since", since=seconds(query.since))
    return where


def list_memories(tx: Transaction, query: MemoryQuery) -> Found[MemoryRow]:
    """One page of memories, most recently changed first."""
    collection = find_collection(tx, collection_of(query.namespace))
    if collection is None:
        return Found((), 0, 0 if query.page.after else query.page.offset, None)
    return _LISTING.page(tx, conditions_of(tx, collection, query), query.page, memory_row)


def list_namespaces(
    tx: Transaction, namespaces: Namespaces, now: datetime, page: Slice
) -> Found[NamespaceRow]:
    """One page of the namespaces that have memories, by name."""
    where = memory_links.unexpired(namespaces, now)
    rows = tx.all(
        f"""SELECT s.name, count(*), max(m.updated_at) FROM {TABLES}
             WHERE s.kind = 'memories' AND {where.sql} GROUP BY s.name ORDER BY s.name""",
        **where.params,
    )
    return page_of([NamespaceRow(row[0], int(row[1]), moment(row[2])) for row in rows], page)


def memory_row(row: Row) -> MemoryRow:
    """Convert a row to a list entry."""
    memory = memory_of(row, ())
    return MemoryRow(**{name: getattr(memory, name) for name in MemoryRow.__slots__})


def memories_after(
    tx: Transaction, namespaces: Namespaces, after: int, limit: int, now: datetime
) -> list[tuple[int, Memory]]:
    """The next memories in order of creation, for export."""
    where = memory_links.unexpired(namespaces, now)
    where.add("s.kind = 'memories' AND m.number > :after", after=after)
    rows = tx.all(
        f"SELECT {COLUMNS} FROM {TABLES} WHERE {where.sql} ORDER BY m.number LIMIT :limit",
        **where.params,
        limit=limit,
    )
    return [(row[0], memory_of(row, memory_links.links_of(tx, row[0]))) for row in rows]


OF_MEMORY = ("memory_versions", "memory_tags", "memory_links", "memory_ties", "memory_shingles")


def remove_memory(
    tx: Transaction, namespace: str, key: str, *, now: datetime, by: str = ""
) -> bool:
    """Remove a memory with its history, on request of the key *by*."""
    collection = find_collection(tx, collection_of(namespace))
    stored = find_memory(tx, collection, key) if collection is not None else None
    if collection is None or stored is None:
        return False
    remove_document(tx, collection, stored.number, by)
    return not is_expired(stored.memory, now)


def remove_document(tx: Transaction, collection: int, number: int, by: str | None = None) -> None:
    """Remove a memory, its dependent rows, and its document in the ranking index."""
    mail_texts.retain_digests(tx, number, by)
    for table in OF_MEMORY:
        tx.run(f"DELETE FROM {table} WHERE memory = :memory", memory=number)
    tx.run("DELETE FROM memories WHERE number = :number", number=number)
    unindex_document(tx, collection, number)


def remove_expired(tx: Transaction, now: datetime, limit: int) -> int:
    """Remove expired memories, in batches."""
    rows = tx.all(
        """SELECT m.collection, m.number FROM ranking_collections s
            JOIN memories m ON m.collection = s.number
            WHERE m.expires_at <= :now ORDER BY m.number LIMIT :limit""",
        now=seconds(now),
        limit=limit,
    )
    for collection, number in rows:
        remove_document(tx, collection, number)
    return len(rows)


def remove_without_mail(tx: Transaction, numbers: Sequence[int]) -> None:
    """Remove memories whose source mail was removed, or mark them as stale."""
    for collection, number in memory_links.mark_stale(tx, numbers):
        remove_document(tx, collection, number)
    for number in numbers:
        mail_texts.remove_unused_digests(tx, number)


def has_expired(tx: Transaction, now: datetime) -> bool:
    sql = """SELECT 1 FROM ranking_collections s JOIN memories m ON m.collection = s.number
              WHERE m.expires_at <= :now LIMIT 1"""
    return exists(tx, sql, now=seconds(now))
