"""Memories: kept under keys, each version remembered, every link followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from postroom.errors import InvalidInput
from postroom.model.memory import (
    Author,
    Link,
    Memory,
    MemoryChange,
    MemoryQuery,
    MemoryRow,
    MemoryVersion,
    expiry_of,
    lowest,
    shelf_of,
    summary_of,
    trust_of,
)
from postroom.model.page import Found, Slice
from postroom.store.recall.shelves import drop_leaf, find_shelf, put_leaf, shelf_for
from postroom.store.recall.texts import memory_text
from postroom.store.sql import memory_links
from postroom.store.sql.conditions import Conditions
from postroom.store.sql.mail_texts import is_from_mail, mark_as_mail
from postroom.store.sql.values import dumps, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

VERSIONS_KEPT = 50

COLUMNS = """
    m.number, s.name, m.key, m.summary, m.text, m.tags, m.trust, m.is_owners, m.version,
    m.is_stale, m.expires_at, m.created_at, m.updated_at
"""
TABLES = "memories m JOIN shelves s ON s.number = m.shelf"
FIND = f"SELECT {COLUMNS} FROM {TABLES} WHERE m.shelf = :shelf AND m.key = :key"
INSERT = """
    INSERT INTO memories (
        shelf, key, summary, text, tags, trust, is_owners, version, is_stale, expires_at,
        created_at, updated_at
    ) VALUES (
        :shelf, :key, :summary, :text, :tags, :trust, :is_owners, 1, :is_stale, :expires_at,
        :updated_at, :updated_at
    ) RETURNING number
"""
UPDATE = """
    UPDATE memories SET summary = :summary, text = :text, tags = :tags, trust = :trust,
           is_owners = :is_owners, version = version + 1, is_stale = :is_stale,
           expires_at = :expires_at, updated_at = :updated_at
     WHERE number = :number
"""
REMEMBER = """
    INSERT INTO memory_versions (memory, version, summary, text, tags, trust, updated_at)
    SELECT number, version, summary, text, tags, trust, updated_at FROM memories
     WHERE number = :number
"""
HISTORY = """
    SELECT version, summary, text, tags, trust, updated_at FROM memory_versions
     WHERE memory = :memory ORDER BY version DESC LIMIT :limit
"""
OF_MEMORY = ("memory_versions", "memory_tags", "memory_links", "memory_ties", "memory_shingles")


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


def put_memory(
    tx: Transaction, change: MemoryChange, author: Author, now: datetime, *, is_new_allowed: bool
) -> Memory | None:
    """Make a memory or a new version of it; None if there is none and none may be made.

    What asks for nothing new makes no version, whoever asks.
    """
    shelf = shelf_for(tx, shelf_of(change.namespace))
    old = _find(tx, shelf, change.key)
    if old is not None and _is_over(old.memory, now):
        _remove(tx, shelf, old.number)
        old = None
    if old is None and not is_new_allowed:
        return None
    if old is not None and _asks_nothing(old, change, author):
        return replace(old.memory, created=False)
    new = _changed(tx, old, change, author, now)
    number = _save(tx, shelf, old, new, now)
    memory_links.set_links(tx, number, new.links, new.text)
    put_leaf(tx, shelf, number, memory_text(change.key, new.summary, new.text, [*new.tags]).words)
    stored = _find(tx, shelf, change.key)
    assert stored is not None
    return replace(stored.memory, created=old is None)


def _find(tx: Transaction, shelf: int, key: str) -> Stored | None:
    row = tx.one(FIND, shelf=shelf, key=key)
    if row is None:
        return None
    links = memory_links.links_of(tx, row[0])
    memory = _memory(row, links)
    return Stored(row[0], row[3], row[4], memory.tags, links, bool(row[7]), memory)


def _memory(row: Row, links: tuple[Link, ...]) -> Memory:
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


def _is_over(memory: Memory, now: datetime) -> bool:
    return memory.expires_at is not None and memory.expires_at <= now


@dataclass(frozen=True, slots=True)
class _New:
    summary: str | None
    text: str
    tags: tuple[str, ...]
    links: tuple[Link, ...]
    trust: str
    is_owners: bool
    is_stale: bool
    expires_at: datetime | None
    key: str


def _changed(
    tx: Transaction, old: Stored | None, change: MemoryChange, author: Author, now: datetime
) -> _New:
    """What the memory says after a change. Raises InvalidInput, NotFound, Forbidden."""
    text = change.text if change.text is not None else (old.text if old else None)
    if text is None:
        raise InvalidInput("text: is required, since there is no memory under this key yet")
    links = _links(tx, old, change, author)
    before = old.memory.trust if old else None
    trust = trust_of(change, author, before, links=links, known=old.links if old else ())
    summary = change.summary if change.summary is not None else (old.summary if old else None)
    summary = summary or None
    if trust != "mail" and not author.is_owner and is_from_mail(tx, _said(text, summary)):
        trust = "mail"
    return _New(
        summary=summary,
        text=text,
        tags=change.tags if change.tags is not None else (old.tags if old else ()),
        links=links,
        trust=trust,
        is_owners=author.is_owner or (old is not None and old.is_owners),
        is_stale=change.is_stale
        or (old is not None and bool(old.memory.stale) and memory_links.names_gone_mail(tx, links)),
        expires_at=expiry_of(
            change,
            old.memory.expires_at if old else None,
            is_new_mail=trust == "mail" and before != "mail",
            now=now,
        ),
        key=change.key,
    )


def _links(
    tx: Transaction, old: Stored | None, change: MemoryChange, author: Author
) -> tuple[Link, ...]:
    kept = old.links if old else ()
    if change.links is None:
        return kept
    if change.follows_links:
        memory_links.check_links(tx, change.links, known=kept, visible=author.visible)
    # A rule that learns anew says anew from what; all else came from where it came from.
    is_free = author.is_owner or change.at_most == "mail"
    if old is not None and old.memory.trust == "mail" and not is_free:
        memory_links.check_kept(tx, change.links, known=kept)
    return change.links


def _asks_nothing(old: Stored, change: MemoryChange, author: Author) -> bool:
    """Whether a memory says already all that somebody wants it to say."""
    was = old.memory
    return (
        change.text in (None, old.text)
        and (change.summary is None or (change.summary or None) == old.summary)
        and change.tags in (None, old.tags)
        and change.links in (None, old.links)
        and change.expires_at in (None, was.expires_at)
        and not (change.clears_expiry and was.expires_at is not None)
        and not (change.vouches and author.is_owner and was.trust != "user")
        and not (change.is_stale and not was.stale)
        and lowest(was.trust, change.at_most) == was.trust
    )


def _save(tx: Transaction, shelf: int, old: Stored | None, new: _New, now: datetime) -> int:
    values: dict[str, object] = {
        "summary": new.summary,
        "text": new.text,
        "tags": dumps(new.tags),
        "trust": new.trust,
        "is_owners": int(new.is_owners),
        "is_stale": int(new.is_stale),
        "expires_at": None if new.expires_at is None else seconds(new.expires_at),
        "updated_at": seconds(now),
    }
    if old is None:
        row = tx.one(INSERT, shelf=shelf, key=new.key, **values)
        number = int(row[0]) if row else 0
    else:
        number = old.number
        tx.run(REMEMBER, number=number)
        tx.run(UPDATE, number=number, **values)
        tx.run(
            "DELETE FROM memory_versions WHERE memory = :memory AND version <= :oldest",
            memory=number,
            oldest=old.memory.version - VERSIONS_KEPT,
        )
    _set_tags(tx, number, new.tags)
    if new.trust == "mail":
        is_source = any(link.is_mail for link in new.links)
        mark_as_mail(tx, _said(new.text, new.summary), with_parts=is_source)
    return number


def _said(text: str, summary: str | None) -> list[str]:
    return [text] if summary is None else [text, summary]


def _set_tags(tx: Transaction, number: int, tags: Sequence[str]) -> None:
    tx.run("DELETE FROM memory_tags WHERE memory = :memory", memory=number)
    if tags:
        tx.many(
            "INSERT INTO memory_tags (memory, tag) VALUES (:memory, :tag)",
            [{"memory": number, "tag": tag} for tag in tags],
        )


def get_memory(
    tx: Transaction, namespace: str, key: str, now: datetime, *, history: int = 0
) -> Memory | None:
    """A memory by its key, with so many of its older versions."""
    shelf = find_shelf(tx, shelf_of(namespace))
    stored = _find(tx, shelf, key) if shelf is not None else None
    if stored is None or _is_over(stored.memory, now):
        return None
    if not history:
        return stored.memory
    rows = tx.all(HISTORY, memory=stored.number, limit=history)
    return replace(stored.memory, history=tuple(_version(row) for row in rows))


def _version(row: Row) -> MemoryVersion:
    summary = summary_of(row[2]) if row[1] is None else row[1]
    tags = tuple(from_text(row[3]))
    return MemoryVersion(row[0], summary, row[2], tags, row[4], moment(row[5]))


def remove_memory(tx: Transaction, namespace: str, key: str, now: datetime) -> bool:
    """Remove a memory with its history."""
    shelf = find_shelf(tx, shelf_of(namespace))
    stored = _find(tx, shelf, key) if shelf is not None else None
    if shelf is None or stored is None:
        return False
    _remove(tx, shelf, stored.number)
    return not _is_over(stored.memory, now)


def _remove(tx: Transaction, shelf: int, number: int) -> None:
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
        _remove(tx, shelf, number)
    return len(rows)


def forget_without_mail(tx: Transaction, numbers: Sequence[int]) -> None:
    """Let memories go, or mark them as stale, once the mail they were learnt from is gone."""
    for shelf, number in memory_links.without_mail(tx, numbers):
        _remove(tx, shelf, number)


def has_expired(tx: Transaction, now: datetime) -> bool:
    """Whether the time of some memory is over."""
    row = tx.one(
        """SELECT 1 FROM shelves s JOIN memories m ON m.shelf = s.number
            WHERE m.expires_at <= :now LIMIT 1""",
        now=seconds(now),
    )
    return row is not None


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
    memory = _memory(row, ())
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
    return [(row[0], _memory(row, memory_links.links_of(tx, row[0]))) for row in rows]


def put_memories(
    tx: Transaction, given: Sequence[Memory], author: Author, now: datetime
) -> tuple[int, int]:
    """Take in memories as they were exported: how many are new, and how many were changed.

    What came out of mail stays marked, and links to mail that is not here stay as they are.
    """
    created = changed = 0
    for memory in given:
        before = get_memory(tx, memory.namespace, memory.key, now)
        after = _put_exported(tx, memory, author, now)
        created += before is None
        changed += before is not None and after.version > before.version
    return created, changed


def _put_exported(tx: Transaction, memory: Memory, author: Author, now: datetime) -> Memory:
    change = MemoryChange(
        namespace=memory.namespace,
        key=memory.key,
        text=memory.text,
        summary="" if memory.summary == summary_of(memory.text) else memory.summary,
        tags=memory.tags,
        links=memory.links,
        expires_at=memory.expires_at,
        clears_expiry=memory.expires_at is None,
        at_most=memory.trust,
        follows_links=False,
        is_stale=bool(memory.stale),
    )
    after = put_memory(tx, change, author, now, is_new_allowed=True)
    assert after is not None
    return after
