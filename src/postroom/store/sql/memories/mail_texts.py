"""Recognises text that came from mail, also after its memory was removed.

Digests of words are stored per memory, with the messages and threads they came from
(`mail_memories`, `mail_memory_digests`, `mail_memory_sources`). An author is matched only against
namespaces that they see: existing memories, and removed ones that they removed themselves or whose
mail they may read. So a result discloses nothing about other mail. Digests of a removed memory are
deleted with its mail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from postroom.mail.text.fold import fold
from postroom.model.memory import Author, Link, Namespaces
from postroom.model.view import EVERYTHING
from postroom.store.sql.memories import memory_links
from postroom.store.sql.statements import (
    Conditions,
    any_of,
    batches,
    exists,
    insert,
    insert_many,
    seconds,
    update,
)
from postroom.store.transaction import Transaction

_LONG_RUN = 8
"""So many words in a row are a match."""

_SHORT_TEXT = 4
"""The minimum number of words to match inside another text; a shorter text must match exactly."""

_BATCH_SIZE = 500
_MAX_REPEATED = 20
"""The number of repeated memories whose sources a new one inherits."""

_ONCE = " ON CONFLICT DO NOTHING"
WITHOUT_DIGESTS = """
    SELECT n.memory FROM mail_memories n JOIN ranking_collections s ON s.number = n.collection
     WHERE n.has_digests = 0 AND {where} ORDER BY n.memory LIMIT :limit
"""
TEXTS_FROM_MAIL = """
    SELECT text, summary FROM memories WHERE number = :memory AND trust = 'mail'
     UNION ALL
    SELECT text, summary FROM memory_versions WHERE memory = :memory AND trust = 'mail'
"""
WITH_DIGESTS = """
    SELECT DISTINCT n.memory, n.is_removed, n.removed_by, m.expires_at
      FROM mail_memory_digests w JOIN mail_memories n ON n.memory = w.memory
      JOIN ranking_collections s ON s.number = n.collection
      LEFT JOIN memories m ON m.number = n.memory
     WHERE w.digest {among} AND {where} ORDER BY n.is_removed, n.memory
"""


def store_digests(
    tx: Transaction,
    memory: int,
    collection: int,
    texts: Iterable[str],
    *,
    links: Sequence[Link],
    repeated: Sequence[int],
) -> None:
    """Store that the words of a memory came from mail: of its links, or of repeated memories.

    Long runs of words are stored too, so that a part of a memory is not trusted more than all of
    it: also of one that repeats another, or two copies would raise the trust of a text.
    """
    new = {"memory": memory, "collection": collection, "has_digests": 1, "is_removed": 0}
    insert(tx, "mail_memories", _ONCE, **new)
    sources = {memory_links.target_of(tx, link.to) for link in links if link.is_mail}
    _add_digests(tx, memory, texts, with_parts=bool(sources or repeated))
    for other in repeated:
        sources.update(_sources(tx, other))
    rows = [{"memory": memory, "source": source} for source in sorted(sources)]
    insert_many(tx, "mail_memory_sources", rows, _ONCE)


def _add_digests(tx: Transaction, memory: int, texts: Iterable[str], *, with_parts: bool) -> None:
    digests: set[bytes] = set()
    for terms in map(_terms, texts):
        digests.add(_digest(terms))
        if with_parts:
            digests.update(_digest(run) for run in _runs(terms, _LONG_RUN))
    rows = [{"digest": digest, "memory": memory} for digest in sorted(digests)]
    insert_many(tx, "mail_memory_digests", rows, _ONCE)


def _sources(tx: Transaction, memory: int) -> list[str]:
    rows = tx.all("SELECT source FROM mail_memory_sources WHERE memory = :m", m=memory)
    return [row[0] for row in rows]


def store_missing_digests(tx: Transaction, namespaces: Namespaces, limit: int) -> int:
    """Store the digests of older memories, in batches."""
    where = _among(namespaces)
    rows = tx.all(WITHOUT_DIGESTS.format(where=where.sql), **where.params, limit=limit)
    for row in rows:
        _store_missing_digests(tx, row[0])
    return len(rows)


def _store_missing_digests(tx: Transaction, memory: int) -> None:
    rows = tx.all(TEXTS_FROM_MAIL, memory=memory)
    texts = [text for row in rows for text in row if text is not None]
    _add_digests(tx, memory, texts, with_parts=bool(_sources(tx, memory)))
    update(tx, "mail_memories", {"memory": memory}, has_digests=1)


def has_missing_digests(tx: Transaction) -> bool:
    """Whether there are memories without digests."""
    return exists(tx, "SELECT 1 FROM mail_memories WHERE has_digests = 0 LIMIT 1")


def repeated_memories(
    tx: Transaction, texts: Iterable[str], author: Author, now: datetime
) -> list[int]:
    """The memories from mail that one of the texts repeats, as far as the author may know them.

    Only words are compared: other punctuation or added text does not make a text trusted.
    """
    while store_missing_digests(tx, author.namespaces, _BATCH_SIZE):
        pass
    asked: set[bytes] = set()
    for terms in map(_terms, texts):
        asked.add(_digest(terms))
        for length in range(_SHORT_TEXT, _LONG_RUN + 1):
            asked.update(_digest(run) for run in _runs(terms, length))
    for batch in batches(sorted(asked)):
        found = _with_digests(tx, batch, author, now)
        if known := list(islice(found, _MAX_REPEATED)):
            return known
    return []


def _with_digests(
    tx: Transaction, digests: Sequence[bytes], author: Author, now: datetime
) -> Iterator[int]:
    where = _among(author.namespaces)
    among, params = any_of("digest", digests)
    rows = tx.all(WITH_DIGESTS.format(among=among, where=where.sql), **params, **where.params)
    for memory, is_removed, removed_by, expires_at in rows:
        is_over = expires_at is not None and expires_at <= seconds(now)
        is_theirs = removed_by == author.key_id if is_removed else not is_over
        if is_theirs or any(
            memory_links.is_visible(tx, source, author.visible) for source in _sources(tx, memory)
        ):
            yield memory


def _among(namespaces: Namespaces) -> Conditions:
    where = Conditions()
    where.within("s.name", namespaces, "namespace")
    return where


def retain_digests(tx: Transaction, memory: int, removed_by: str | None) -> None:
    """Keep the digests of a memory that is removed, as long as its mail exists."""
    row = tx.one("SELECT has_digests FROM mail_memories WHERE memory = :m", m=memory)
    if row is None:
        return
    if not row[0]:
        _store_missing_digests(tx, memory)
    update(tx, "mail_memories", {"memory": memory}, is_removed=1, removed_by=removed_by)
    remove_unused_digests(tx, memory)


def remove_unused_digests(tx: Transaction, memory: int) -> None:
    """Delete removed mail from the sources of a memory, and digests that have no source left."""
    sql = "DELETE FROM mail_memory_sources WHERE memory = :memory AND source = :source"
    for source in _sources(tx, memory):
        if not memory_links.is_visible(tx, source, EVERYTHING):
            tx.run(sql, memory=memory, source=source)
    row = tx.one("SELECT is_removed FROM mail_memories WHERE memory = :m", m=memory)
    if row is None or not row[0] or _sources(tx, memory):
        return
    for table in ("mail_memory_digests", "mail_memories"):
        tx.run(f"DELETE FROM {table} WHERE memory = :memory", memory=memory)


def _terms(text: str) -> list[str]:
    from postroom.mail.text.terms import words

    folded = fold(text)
    return [term for word in words(folded) for term in word.terms] or [folded]


def _runs(terms: list[str], length: int) -> Iterator[list[str]]:
    return (terms[at : at + length] for at in range(len(terms) - length + 1))


def _digest(terms: Sequence[str]) -> bytes:
    text = "\x1f".join(terms).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()
