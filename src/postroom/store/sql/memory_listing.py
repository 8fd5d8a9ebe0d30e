"""Memories in lists and exports, and the filters of both lists and searches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from postroom.model.memory import Memory, MemoryQuery, MemoryRow, shelf_of
from postroom.model.page import Found, Slice
from postroom.store.recall.shelves import find_shelf
from postroom.store.sql import memory_links
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.memories import COLUMNS, TABLES, memory_of
from postroom.store.sql.values import seconds
from postroom.store.transaction import Row, Transaction


def conditions_of(tx: Transaction, shelf: int, query: MemoryQuery) -> Conditions:
    """The filters of a list or a search, on the table `m`."""
    where = Conditions()
    where.add("m.shelf = :shelf", shelf=shelf)
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
    """The memory that changed last comes first."""
    shelf = find_shelf(tx, shelf_of(query.namespace))
    if shelf is None:
        return Found((), 0, 0 if query.page.after else query.page.offset, None)
    where = conditions_of(tx, shelf, query)
    total, before = _count(tx, where, query.page)
    rows = _rows(tx, where, query.page)
    offset = before if query.page.after else query.page.offset
    has_more = rows and offset + len(rows) < total
    return Found(
        tuple(memory_row(row) for row in rows),
        total,
        offset,
        (rows[-1][12], rows[-1][0]) if has_more else None,
    )


def _count(tx: Transaction, where: Conditions, page: Slice) -> tuple[int, int]:
    date, number = page.after or (0, 0)
    row = tx.one(
        f"""SELECT count(*), coalesce(sum(CASE WHEN (m.updated_at, m.number) >= (:date, :number)
                                           THEN 1 ELSE 0 END), 0)
              FROM memories m WHERE {where.sql}""",
        **where.params,
        date=date,
        number=number,
    )
    return (int(row[0]), int(row[1])) if row else (0, 0)


def _rows(tx: Transaction, where: Conditions, page: Slice) -> list[Row]:
    start = "(m.updated_at, m.number) < (:date, :number)" if page.after else "1 = 1"
    date, number = page.after or (0, 0)
    return tx.all(
        f"""SELECT {COLUMNS} FROM {TABLES} WHERE {where.sql} AND {start}
             ORDER BY m.updated_at DESC, m.number DESC LIMIT :limit OFFSET :offset""",
        **where.params,
        **({"date": date, "number": number} if page.after else {}),
        limit=page.limit,
        offset=page.offset,
    )


def memory_row(row: Row) -> MemoryRow:
    """A memory in a list."""
    memory = memory_of(row, ())
    return MemoryRow(
        namespace=memory.namespace,
        key=memory.key,
        summary=memory.summary,
        tags=memory.tags,
        trust=memory.trust,
        version=memory.version,
        updated_at=memory.updated_at,
        expires_at=memory.expires_at,
        stale=memory.stale,
    )


def memories_after(
    tx: Transaction, namespaces: Sequence[str] | None, after: int, limit: int, now: datetime
) -> list[tuple[int, Memory]]:
    """The next memories in order of arrival, for export."""
    where = Conditions()
    where.add("s.kind = 'memories' AND m.number > :after", after=after)
    where.add("(m.expires_at IS NULL OR m.expires_at > :now)", now=seconds(now))
    if namespaces is not None:
        where.among("s.name", "namespace", namespaces)
    rows = tx.all(
        f"SELECT {COLUMNS} FROM {TABLES} WHERE {where.sql} ORDER BY m.number LIMIT :limit",
        **where.params,
        limit=limit,
    )
    return [(row[0], memory_of(row, memory_links.links_of(tx, row[0]))) for row in rows]
