"""Writing memories: each change is a version; imports of exported memories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from postroom.errors import Conflict, InvalidInput
from postroom.model.memory import (
    Author,
    Link,
    Memory,
    MemoryChange,
    collection_of,
    expiry_of,
    lowest,
    summary_of,
    trust_of,
)
from postroom.model.values import dataclass
from postroom.store.ranking.index import collection_for, index_document, memory_text
from postroom.store.sql.memories import memory_links
from postroom.store.sql.memories.mail_texts import repeated_memories, store_digests
from postroom.store.sql.memories.memories import (
    Stored,
    find_memory,
    get_memory,
    is_expired,
    remove_document,
)
from postroom.store.sql.statements import (
    dumps,
    insert_many,
    insert_numbered,
    seconds,
    seconds_or_none,
    update,
)
from postroom.store.transaction import Transaction

MAX_VERSIONS = 50
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
        Conflict: the version to change is not the newest.
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
    _refuse_other_version(old, change)
    if old is not None and _is_unchanged(old, change, author):
        return replace(old.memory, created=False)
    new = _changed(tx, old, change, author, now)
    number = _save(tx, collection, old, new, now)
    memory_links.set_links(tx, number, new.links, new.text)
    index_document(
        tx,
        collection,
        number,
        memory_text(change.key, new.summary, new.text, [*new.tags]).for_terms,
    )
    stored = find_memory(tx, collection, change.key)
    assert stored is not None
    return replace(stored.memory, created=old is None)


def _refuse_other_version(old: Stored | None, change: MemoryChange) -> None:
    version = old.memory.version if old is not None else None
    if None not in (version, change.of_version) and version != change.of_version:
        raise Conflict(
            f"the memory has changed since you read it: it is at version {version}, and you "
            f"changed version {change.of_version}; compare both and save again"
        )


def _changed(
    tx: Transaction, old: Stored | None, change: MemoryChange, author: Author, now: datetime
) -> _New:
    """The memory after a change. Raises InvalidInput, NotFound, Forbidden."""
    was = old.memory if old else None
    text = change.text if change.text is not None else (was.text if was else None)
    if text is None:
        raise InvalidInput("text: is required, since there is no memory under this key yet")
    links = _links(tx, was, change, author)
    before = was.trust if was else None
    trust = trust_of(change, author, before, links=links, known=was.links if was else ())
    summary = change.summary if change.summary is not None else (old.summary if old else None)
    summary = summary or None
    repeated: Sequence[int] = ()
    if trust != "mail" and not author.is_owner:
        repeated = repeated_memories(tx, _texts(text, summary), author, now)
        trust = "mail" if repeated else trust
    return _New(
        summary=summary,
        text=text,
        tags=change.tags if change.tags is not None else (was.tags if was else ()),
        links=links,
        trust=trust,
        is_owners=author.is_owner or (old is not None and old.is_owners),
        is_stale=change.is_stale
        or (was is not None and bool(was.stale) and memory_links.has_removed_mail(tx, links)),
        expires_at=expiry_of(
            change,
            was.expires_at if was else None,
            is_new_mail=trust == "mail" and before != "mail",
            now=now,
        ),
        key=change.key,
        repeated=tuple(repeated),
    )


def _links(
    tx: Transaction, was: Memory | None, change: MemoryChange, author: Author
) -> tuple[Link, ...]:
    known = was.links if was else ()
    if change.links is None:
        return known
    if change.follows_links:
        memory_links.check_links(tx, change.links, known=known, visible=author.visible)
    # A rule replaces the sources of its memory; others may not remove them.
    is_free = author.is_owner or change.at_most == "mail"
    if was is not None and was.trust == "mail" and not is_free:
        memory_links.refuse_source_removal(tx, change.links, known=known)
    return change.links


def _is_unchanged(old: Stored, change: MemoryChange, author: Author) -> bool:
    """Whether a change would leave the memory as it is."""
    was = old.memory
    return (
        change.text in (None, was.text)
        and (change.summary is None or (change.summary or None) == old.summary)
        and change.tags in (None, was.tags)
        and change.links in (None, was.links)
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
        "version": 1 if old is None else old.memory.version + 1,
    }
    if old is None:
        own = {"collection": collection, "key": new.key, "created_at": seconds(now)}
        number = insert_numbered(tx, "memories", **own, **values)
    else:
        number = old.number
        tx.run(INSERT_VERSION, number=number)
        update(tx, "memories", {"number": number}, **values)
        tx.run(
            "DELETE FROM memory_versions WHERE memory = :memory AND version <= :oldest",
            memory=number,
            oldest=old.memory.version - MAX_VERSIONS,
        )
    tx.run("DELETE FROM memory_tags WHERE memory = :memory", memory=number)
    insert_many(tx, "memory_tags", [{"memory": number, "tag": tag} for tag in new.tags])
    if new.trust == "mail":
        texts = _texts(new.text, new.summary)
        store_digests(tx, number, collection, texts, links=new.links, repeated=new.repeated)
    return number


def _texts(text: str, summary: str | None) -> list[str]:
    return [text] if summary is None else [text, summary]


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
