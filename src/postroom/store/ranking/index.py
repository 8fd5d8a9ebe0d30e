"""The interface of the ranking index: documents of collections and their vectors, and the
searchers.

All other modules of this package are private to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from postroom.extras import is_installed
from postroom.model.memory import MAIL_COLLECTION, CollectionName, Unembedded, Vector, summary_of
from postroom.model.values import dataclass
from postroom.store.sql.statements import all_among, dumps, exists, from_text, insert, scalar
from postroom.store.transaction import Row, Transaction

if TYPE_CHECKING:
    from postroom.store.ranking.collection import CollectionCache
    from postroom.store.ranking.searchers import MailSearcher, MemorySearcher
    from postroom.store.search.index import IndexSearcher

MAIL_CHARS = 20_000
"""How much of a message is indexed."""

_EMBEDDED_CHARS = 2_000
"""How much of a text is embedded."""

MEMORY_TEXT = "SELECT key, summary, text, tags FROM memories WHERE number = :source"
MESSAGE_TEXT = """
    SELECT m.subject, m.from_name, coalesce(b.new_text, b.text)
      FROM messages m JOIN bodies b ON +b.inbox = +m.inbox AND b.message = m.number
     WHERE m.number = :source
"""


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text that is split into terms, and the text that is embedded."""

    for_terms: str
    for_embedding: str


def text_of(tx: Transaction, kind: str, source: int) -> DocumentText:
    """The text of a memory or message; empty if it is deleted."""
    row = tx.one(MEMORY_TEXT if kind == "memories" else MESSAGE_TEXT, source=source)
    if row is None:
        return DocumentText("", "")
    if kind == "memories":
        return memory_text(row[0], row[1], row[2], from_text(row[3]))
    return message_text(*row)


def memory_text(key: str, summary: str | None, text: str, tags: list[str]) -> DocumentText:
    """Key and tags count as terms, but are not embedded."""
    parts = [summary, text] if summary and summary != summary_of(text) else [text]
    meaning = "\n".join(parts)
    return DocumentText("\n".join([key, *tags, meaning]), meaning[:_EMBEDDED_CHARS])


def message_text(subject: str, sender: str, text: str) -> DocumentText:
    """A message without quoted text."""
    words = f"{subject}\n{sender}\n{text[:MAIL_CHARS]}"
    return DocumentText(words, f"{subject}\n{text}"[:_EMBEDDED_CHARS])


BUFFERED_DOCUMENTS = 1024
MAX_TOMBSTONES = 4096

FIND_COLLECTION = "SELECT number FROM ranking_collections WHERE kind = :kind AND name = :name"
CREATE_COLLECTION = """
    INSERT INTO ranking_collections (kind, name) VALUES (:kind, :name)
    ON CONFLICT (kind, name) DO NOTHING RETURNING number
"""
INSERT_DOCUMENT = """
    INSERT INTO ranking_documents (collection, document, item, length, terms)
    SELECT :collection, next_document, :source, :length, :terms FROM ranking_collections
     WHERE number = :collection
"""
COUNT_ADDED = """
    UPDATE ranking_collections
       SET next_document = next_document + 1, documents = documents + 1,
           total_length = total_length + :length, buffered = buffered + 1, changes = changes + 1
     WHERE number = :collection RETURNING buffered
"""
DELETE_DOCUMENT = """
    DELETE FROM ranking_documents WHERE collection = :collection AND item = :source
    RETURNING document, length, CASE WHEN terms IS NULL THEN 0 ELSE 1 END
"""
COUNT_DELETED = """
    UPDATE ranking_collections
       SET documents = documents - 1, total_length = total_length - :length,
           buffered = buffered - :in_buffer, deleted = deleted + 1, changes = changes + 1
     WHERE number = :collection RETURNING documents, deleted
"""
UNEMBEDDED = """
    SELECT l.collection, l.document, l.item, s.kind FROM ranking_documents l
     JOIN ranking_collections s ON s.number = l.collection
     WHERE l.vector IS NULL AND {which} ORDER BY l.collection DESC, l.document DESC LIMIT :limit
"""
_OF_COLLECTION = """
    l.collection = (SELECT number FROM ranking_collections WHERE kind = :kind AND name = :name)
"""
MAIL_UNEMBEDDED = """
    SELECT l.collection, l.document, l.item, s.kind
      FROM ranking_documents l JOIN ranking_collections s ON s.number = l.collection
     WHERE s.kind = :kind AND s.name = :name AND l.item {among}
       AND (l.vector IS NULL OR l.model < :model OR l.model > :model)
"""
OF_OTHER_MODELS = f"""
    SELECT l.collection, l.document, l.item, :kind FROM ranking_documents l
     WHERE {_OF_COLLECTION} AND l.embedded_at_change IS NOT NULL
       AND (l.model < :model OR l.model > :model)
     LIMIT :limit
"""
COUNT_PENDING = f"""
    SELECT count(*) FROM (
        SELECT 1 FROM ranking_documents l WHERE {_OF_COLLECTION} AND l.vector IS NULL
     UNION ALL
        SELECT 1 FROM ranking_documents l
         WHERE {_OF_COLLECTION} AND l.embedded_at_change IS NOT NULL AND l.model < :model
     UNION ALL
        SELECT 1 FROM ranking_documents l
         WHERE {_OF_COLLECTION} AND l.embedded_at_change IS NOT NULL AND l.model > :model
     LIMIT :limit) AS pending
"""
STORE_VECTOR = """
    UPDATE ranking_documents SET vector = :vector, model = :model, embedded_at_change =
           (SELECT changes + 1 FROM ranking_collections WHERE number = :collection)
     WHERE collection = :collection AND document = :document
       AND (vector IS NULL OR model < :model OR model > :model)
"""
DELETE_VECTORS = """
    UPDATE ranking_documents SET vector = NULL, model = NULL, embedded_at_change = NULL
     WHERE collection = :collection
"""


def find_collection(tx: Transaction, collection: CollectionName) -> int | None:
    """The number of a collection, if it exists."""
    found: int | None = scalar(tx, FIND_COLLECTION, **_collection_params(collection))
    return found


def _collection_params(collection: CollectionName) -> dict[str, str]:
    return {"kind": collection[0], "name": collection[1]}


def collection_for(tx: Transaction, collection: CollectionName) -> int:
    """The number of a collection, which is created on first use."""
    found = find_collection(tx, collection)
    if found is None:
        found = int(scalar(tx, CREATE_COLLECTION, **_collection_params(collection)) or 0)
    return found


def index_document(tx: Transaction, collection: int, source: int, text: str) -> None:
    """Index a text in place of the earlier text of the same memory or message."""
    from postroom.mail.text.terms import count_terms

    unindex_document(tx, collection, source)
    add_document(tx, collection, source, count_terms(text))


def add_document(tx: Transaction, collection: int, source: int, counts: Counter[str]) -> None:
    """Add a document to the buffer, and flush the buffer if it is full."""
    length = counts.total()
    tx.run(
        INSERT_DOCUMENT, collection=collection, source=source, length=length, terms=dumps(counts)
    )
    row = tx.one(COUNT_ADDED, collection=collection, length=length)
    if row and row[0] >= BUFFERED_DOCUMENTS:
        # Not needed by a process that writes a few memories.
        from postroom.store.ranking.compaction import flush_buffer

        flush_buffer(tx, collection, BUFFERED_DOCUMENTS)


def unindex_document(tx: Transaction, collection: int, source: int) -> None:
    """Delete the document of a memory or message, if it exists."""
    row = tx.one(DELETE_DOCUMENT, collection=collection, source=source)
    if row is None:
        return
    document, length, in_buffer = row
    insert(tx, "ranking_deletions", collection=collection, document=document)
    counts = tx.one(COUNT_DELETED, collection=collection, length=length, in_buffer=in_buffer)
    live, deleted = counts or (0, 0)
    if deleted > max(MAX_TOMBSTONES, live):
        from postroom.store.ranking.compaction import purge_deleted

        purge_deleted(tx, collection)


def has_unembedded(tx: Transaction) -> bool:
    return exists(tx, "SELECT 1 FROM ranking_documents WHERE vector IS NULL LIMIT 1")


def count_unembedded(
    tx: Transaction, collection: CollectionName, model: str, max_count: int
) -> int:
    """The number of documents without a vector of a model, up to *max_count*."""
    params = _collection_params(collection)
    return int(scalar(tx, COUNT_PENDING, **params, model=model, limit=max_count))


def unembedded(tx: Transaction, collection: CollectionName | None, limit: int) -> list[Unembedded]:
    """Documents without a vector, of one collection or of all, newest first."""
    which, params = "l.collection >= 0", dict[str, str]()
    if collection is not None:
        which, params = "s.kind = :kind AND s.name = :name", _collection_params(collection)
    return _with_texts(tx, tx.all(UNEMBEDDED.format(which=which), **params, limit=limit))


def embedded_by_others(
    tx: Transaction, collection: CollectionName, model: str, limit: int
) -> list[Unembedded]:
    """Documents whose vector was made by another model."""
    rows = tx.all(OF_OTHER_MODELS, **_collection_params(collection), model=model, limit=limit)
    return _with_texts(tx, rows)


def _with_texts(tx: Transaction, rows: Sequence[Row]) -> list[Unembedded]:
    return [Unembedded(row[0], row[1], text_of(tx, row[3], row[2]).for_embedding) for row in rows]


def store_vectors(
    tx: Transaction, model: str, vectors: Sequence[tuple[Unembedded, Vector]]
) -> None:
    """Store vectors; documents that were deleted or embedded meanwhile are skipped."""
    from postroom.store.ranking.vectors import pack_vector

    for document, vector in vectors:
        number = {"collection": document.collection, "document": document.document}
        tx.run(STORE_VECTOR, **number, vector=pack_vector(vector), model=model)
    _count_change(tx, {document.collection for document, _ in vectors})


def collections_of_other_models(tx: Transaction, model: str) -> list[int]:
    rows = tx.all(
        """SELECT number FROM ranking_collections s WHERE EXISTS (
                SELECT 1 FROM ranking_documents l
                 WHERE l.collection = s.number AND l.embedded_at_change IS NOT NULL
                   AND (l.model < :model OR l.model > :model))""",
        model=model,
    )
    return [row[0] for row in rows]


def delete_vectors(tx: Transaction, collections: Sequence[int]) -> None:
    for collection in collections:
        tx.run(DELETE_VECTORS, collection=collection)
    _count_change(tx, collections)


def _count_change(tx: Transaction, collections: Iterable[int]) -> None:
    sql = "UPDATE ranking_collections SET changes = changes + 1 WHERE number = :collection"
    for collection in collections:
        tx.run(sql, collection=collection)


MAX_MAIL = 50_000
"""The most messages of an inbox in the collection; older mail is added up to this many in total."""

CHECK_EVERY = 500
"""After this many new documents, inboxes with too many are trimmed."""

INDEXED_RANGE = """
    SELECT oldest, newest, documents, next_document FROM ranking_collections
     WHERE number = :collection
"""
UPDATE_RANGE = """
    UPDATE ranking_collections SET oldest = :oldest, newest = :newest WHERE number = :collection
"""
NEWER = "SELECT number FROM messages WHERE number > :newest ORDER BY number LIMIT :limit"
OLDER = "SELECT number FROM messages WHERE number < :oldest ORDER BY number DESC LIMIT :limit"
INDEXED = "SELECT item FROM ranking_documents WHERE collection = :collection AND item {among}"
ALL_DOCUMENTS = "SELECT item FROM ranking_documents WHERE collection = :collection ORDER BY item"
INBOXES = "SELECT number, inbox FROM messages WHERE number {among}"
_MAX_NUMBER = 2**62


def index_mail(tx: Transaction, limit: int) -> int:
    """Index the next messages of all inboxes; return how many."""
    collection = collection_for(tx, MAIL_COLLECTION)
    oldest, newest, count = _indexed_range(tx, collection)
    numbers = [row[0] for row in tx.all(NEWER, newest=newest, limit=limit)] if newest else []
    if len(numbers) < limit and count < MAX_MAIL:
        room = min(limit - len(numbers), MAX_MAIL - count)
        numbers += [row[0] for row in tx.all(OLDER, oldest=oldest, limit=room)]
    if numbers:
        bounds = {"oldest": min(oldest, *numbers), "newest": max(newest, *numbers)}
        tx.run(UPDATE_RANGE, collection=collection, **bounds)
    index_messages(tx, numbers)
    return len(numbers)


def index_messages(tx: Transaction, numbers: Sequence[int]) -> None:
    """Index some messages, unless they are indexed."""
    collection = collection_for(tx, MAIL_COLLECTION)
    indexed = {row[0] for row in all_among(tx, INDEXED, numbers, collection=collection)}
    inboxes = inboxes_of_messages(tx, numbers)
    for number in numbers:
        if number in inboxes and number not in indexed:
            index_document(tx, collection, number, text_of(tx, "mail", number).for_terms)
    row = tx.one(INDEXED_RANGE, collection=collection)
    if row and row[2] > MAX_MAIL and row[3] % CHECK_EVERY < len(numbers):
        _trim_inboxes(tx, collection)


def _trim_inboxes(tx: Transaction, collection: int) -> None:
    """Delete the oldest documents of inboxes with more than `MAX_MAIL`."""
    numbers = [row[0] for row in tx.all(ALL_DOCUMENTS, collection=collection)]
    by_inbox: dict[int, list[int]] = {}
    for number, inbox in inboxes_of_messages(tx, numbers).items():
        by_inbox.setdefault(inbox, []).append(number)
    for numbers in by_inbox.values():
        for number in sorted(numbers)[: max(0, len(numbers) - MAX_MAIL)]:
            unindex_document(tx, collection, number)


def inboxes_of_messages(tx: Transaction, numbers: Sequence[int]) -> dict[int, int]:
    """The inbox of each message that exists."""
    return dict(all_among(tx, INBOXES, numbers))


def _indexed_range(tx: Transaction, collection: int) -> tuple[int, int, int]:
    """The oldest and newest indexed message, and the number of documents."""
    row = tx.one(INDEXED_RANGE, collection=collection)
    oldest, newest, count, _ = row or (None, None, 0, 0)
    return (_MAX_NUMBER if oldest is None else oldest), (newest or 0), count


def has_unindexed(tx: Transaction, *, starts: bool = False) -> bool:
    """Whether mail waits to be indexed; *starts* if there is no collection yet."""
    collection = find_collection(tx, MAIL_COLLECTION)
    if collection is None:
        return starts
    oldest, newest, count = _indexed_range(tx, collection)
    if newest and tx.all(NEWER, newest=newest, limit=1):
        return True
    return count < MAX_MAIL and bool(tx.all(OLDER, oldest=oldest, limit=1))


def unembedded_mail(tx: Transaction, numbers: Sequence[int], model: str) -> list[Unembedded]:
    """Those of some messages that have no vector of a model."""
    collection = _collection_params(MAIL_COLLECTION)
    return _with_texts(tx, all_among(tx, MAIL_UNEMBEDDED, numbers, model=model, **collection))


def unindex_mail(tx: Transaction, numbers: Sequence[int]) -> None:
    collection = find_collection(tx, MAIL_COLLECTION)
    if collection is not None:
        for number in numbers:
            unindex_document(tx, collection, number)


class RankingIndex:
    """The searchers of memories and mail, which share a cache.

    The first use imports numpy. Where it is not installed, results are the same, but slower.
    """

    def __init__(self, searcher: IndexSearcher) -> None:
        self._searcher = searcher

    @cached_property
    def _cache(self) -> CollectionCache[Any, Any]:
        from postroom.store.ranking.collection import CollectionCache

        if is_installed("index"):
            from postroom.store.ranking.array_collection import ArrayCollection

            return CollectionCache(ArrayCollection)
        from postroom.store.ranking.plain_collection import PlainCollection

        return CollectionCache(PlainCollection)

    @cached_property
    def memories(self) -> MemorySearcher:
        from postroom.store.ranking.searchers import MemorySearcher

        return MemorySearcher(self._cache)

    @cached_property
    def mail(self) -> MailSearcher:
        from postroom.store.ranking.searchers import MailSearcher

        return MailSearcher(self._cache, self._searcher)
