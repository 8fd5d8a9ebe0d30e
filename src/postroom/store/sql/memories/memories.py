"""Memories: read by key and in lists, written in versions, removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
    Namespaces,
    collection_of,
    expiry_of,
    lowest,
    summary_of,
    trust_of,
)
from postroom.model.page import Found
from postroom.model.values import dataclass
from postroom.store.ranking.documents import (
    collection_for,
    find_collection,
    index_document,
    memory_text,
    unindex_document,
)
from postroom.store.sql.conditions import Conditions, Listing
from postroom.store.sql.memories import mail_texts, memory_links
from postroom.store.sql.memories.mail_texts import repeated_memories, store_digests
from postroom.store.sql.values import (
    dumps,
    from_text,
    insert_many,
    insert_numbered,
    moment,
    moment_or_none,
    seconds,
    seconds_or_none,
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
    text: str
    tags: tuple[str, ...]
    links: tuple[Link, ...]
    is_owners: bool
    memory: Memory


def find_memory(tx: Transaction, collection: int, key: str) -> Stored | None:
    """The memory under a key of a collection, even if it has expired."""
    row = tx.one(FIND, collection=collection, key=key)
    if row is None:
        return None
    links = memory_links.links_of(tx, row[0])
    memory = memory_of(row, links)
    return Stored(row[0], row[3], row[4], memory.tags, links, bool(row[7]), memory)


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


def memory_row(row: Row) -> MemoryRow:
    """Convert a row to a list entry."""
    memory = memory_of(row, ())
    return MemoryRow(**{name: getattr(memory, name) for name in MemoryRow.__slots__})


def memories_after(
    tx: Transaction, namespaces: Namespaces, after: int, limit: int, now: datetime
) -> list[tuple[int, Memory]]:
    """The next memories in order of creation, for export."""
    where = Conditions()
    where.add("s.kind = 'memories' AND m.number > :after", after=after)
    where.add("(m.expires_at IS NULL OR m.expires_at > :now)", now=seconds(now))
    where.within("s.name", namespaces, "namespace")
    rows = tx.all(
        f"SELECT {COLUMNS} FROM {TABLES} WHERE {where.sql} ORDER BY m.number LIMIT :limit",
        **where.params,
        limit=limit,
    )
    return [(row[0], memory_of(row, memory_links.links_of(tx, row[0]))) for row in rows]


OF_MEMORY = ("memory_versions", "memory_tags", "memory_links", "memory_ties", "memory_shingles")


def remove_memory(tx: Transaction, namespace: str, key: str, now: datetime, by: str) -> bool:
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
    row = tx.one(
        """SELECT 1 FROM ranking_collections s JOIN memories m ON m.collection = s.number
            WHERE m.expires_at <= :now LIMIT 1""",
        now=seconds(now),
    )
    return row is not None


MAX_VERSIONS = 50
UPDATE = """
    UPDATE memories SET summary = :summary, text = :text, tags = :tags, trust = :trust,
           written_by_owner = :written_by_owner, version = version + 1, is_stale = :is_stale,
           expires_at = :expires_at, updated_at = :updated_at
     WHERE number = :number
"""
INSERT_VERSION = """
    INSERT INTO memory_versions (memory, version, summary, text, tags, trust, updated_at)
    SELECT number, version, summary, text, tags, trust, updated_at FROM memories
     WHERE number = :number
"""


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
    repeated: tuple[int, ...]


def save_memory(
    tx: Transaction, change: MemoryChange, author: Author, now: datetime, *, is_new_allowed: bool
) -> Memory | None:
    """Insert a memory or a new version of it; None if it does not exist and may not be created.

    A request that changes nothing creates no version.

    Raises:
        InvalidInput: a new memory has no text.
        NotFound: a link names mail that the author cannot see.
        Forbidden: only the owner may remove the links that say where it comes from.
    """
    collection = collection_for(tx, collection_of(change.namespace))
    old = find_memory(tx, collection, change.key)
    if old is not None and is_expired(old.memory, now):
        remove_document(tx, collection, old.number)
        old = None
    if old is None and not is_new_allowed:
        return None
    if old is not None and _is_unchanged(old, change, author):
        return replace(old.memory, created=False)
    new = _changed(tx, old, change, author, now)
    number = _save(tx, collection, old, new, now)
    memory_links.set_links(tx, number, new.links, new.text)
    index_document(
        tx, collection, number, memory_text(change.key, new.summary, new.text, [*new.tags]).words
    )
    stored = find_memory(tx, collection, change.key)
    assert stored is not None
    return replace(stored.memory, created=old is None)


def _changed(
    tx: Transaction, old: Stored | None, change: MemoryChange, author: Author, now: datetime
) -> _New:
    """The memory after a change. Raises InvalidInput, NotFound, Forbidden."""
    text = change.text if change.text is not None else (old.text if old else None)
    if text is None:
        raise InvalidInput("text: is required, since there is no memory under this key yet")
    links = _links(tx, old, change, author)
    before = old.memory.trust if old else None
    trust = trust_of(change, author, before, links=links, known=old.links if old else ())
    summary = change.summary if change.summary is not None else (old.summary if old else None)
    summary = summary or None
    repeated: Sequence[int] = ()
    if trust != "mail" and not author.is_owner:
        repeated = repeated_memories(tx, _texts(text, summary), author, now)
        trust = "mail" if repeated else trust
    return _New(
        summary=summary,
        text=text,
        tags=change.tags if change.tags is not None else (old.tags if old else ()),
        links=links,
        trust=trust,
        is_owners=author.is_owner or (old is not None and old.is_owners),
        is_stale=change.is_stale
        or (
            old is not None and bool(old.memory.stale) and memory_links.has_removed_mail(tx, links)
        ),
        expires_at=expiry_of(
            change,
            old.memory.expires_at if old else None,
            is_new_mail=trust == "mail" and before != "mail",
            now=now,
        ),
        key=change.key,
        repeated=tuple(repeated),
    )


def _links(
    tx: Transaction, old: Stored | None, change: MemoryChange, author: Author
) -> tuple[Link, ...]:
    known = old.links if old else ()
    if change.links is None:
        return known
    if change.follows_links:
        memory_links.check_links(tx, change.links, known=known, visible=author.visible)
    # A rule replaces the sources of its memory; others may not remove them.
    is_free = author.is_owner or change.at_most == "mail"
    if old is not None and old.memory.trust == "mail" and not is_free:
        memory_links.refuse_source_removal(tx, change.links, known=known)
    return change.links


def _is_unchanged(old: Stored, change: MemoryChange, author: Author) -> bool:
    """Whether a change would leave the memory as it is."""
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


def _save(tx: Transaction, collection: int, old: Stored | None, new: _New, now: datetime) -> int:
    values: dict[str, object] = {
        "summary": new.summary,
        "text": new.text,
        "tags": dumps(new.tags),
        "trust": new.trust,
        "written_by_owner": int(new.is_owners),
        "is_stale": int(new.is_stale),
        "expires_at": seconds_or_none(new.expires_at),
        "updated_at": seconds(now),
    }
    if old is None:
        own = {"collection": collection, "key": new.key, "version": 1, "created_at": seconds(now)}
        number = insert_numbered(tx, "memories", **own, **values)
    else:
        number = old.number
        tx.run(INSERT_VERSION, number=number)
        tx.run(UPDATE, number=number, **values)
        tx.run(
            "DELETE FROM memory_versions WHERE memory = :memory AND version <= :oldest",
            memory=number,
            oldest=old.memory.version - MAX_VERSIONS,
        )
    _set_tags(tx, number, new.tags)
    if new.trust == "mail":
        texts = _texts(new.text, new.summary)
        store_digests(tx, number, collection, texts, links=new.links, repeated=new.repeated)
    return number


def _texts(text: str, summary: str | None) -> list[str]:
    return [text] if summary is None else [text, summary]


def _set_tags(tx: Transaction, number: int, tags: Sequence[str]) -> None:
    tx.run("DELETE FROM memory_tags WHERE memory = :memory", memory=number)
    insert_many(tx, "memory_tags", [{"memory": number, "tag": tag} for tag in tags])


def import_memories(
    tx: Transaction, memories: Sequence[Memory], author: Author, now: datetime
) -> tuple[int, int]:
    """Import exported memories, and return how many were created and changed.

    Trust `mail` and links to missing mail are kept.
    """
    created = changed = 0
    for memory in memories:
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
    after = save_memory(tx, change, author, now, is_new_allowed=True)
    assert after is not None
    return after
