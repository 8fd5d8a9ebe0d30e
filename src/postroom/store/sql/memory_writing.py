"""Memories, written: each version remembered, every link followed, trust never raised by itself."""

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
    expiry_of,
    lowest,
    shelf_of,
    summary_of,
    trust_of,
)
from postroom.store.recall.shelves import put_leaf, shelf_for
from postroom.store.recall.texts import memory_text
from postroom.store.sql import memory_links
from postroom.store.sql.mail_texts import is_from_mail, mark_as_mail
from postroom.store.sql.memories import Stored, find_memory, get_memory, is_over
from postroom.store.sql.memory_removal import take_off_shelf
from postroom.store.sql.values import dumps, seconds
from postroom.store.transaction import Transaction

VERSIONS_KEPT = 50
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


def put_memory(
    tx: Transaction, change: MemoryChange, author: Author, now: datetime, *, is_new_allowed: bool
) -> Memory | None:
    """Make a memory or a new version of it; None if there is none and none may be made.

    What asks for nothing new makes no version, whoever asks.
    """
    shelf = shelf_for(tx, shelf_of(change.namespace))
    old = find_memory(tx, shelf, change.key)
    if old is not None and is_over(old.memory, now):
        take_off_shelf(tx, shelf, old.number)
        old = None
    if old is None and not is_new_allowed:
        return None
    if old is not None and _asks_nothing(old, change, author):
        return replace(old.memory, created=False)
    new = _changed(tx, old, change, author, now)
    number = _save(tx, shelf, old, new, now)
    memory_links.set_links(tx, number, new.links, new.text)
    put_leaf(tx, shelf, number, memory_text(change.key, new.summary, new.text, [*new.tags]).words)
    stored = find_memory(tx, shelf, change.key)
    assert stored is not None
    return replace(stored.memory, created=old is None)


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
