"""Ranked search of mail, and of memories by terms and vector, by keywords, or for similar ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from typing import Any

from postroom.mail.text.fold import fold
from postroom.mail.text.terms import around, mark, question_terms
from postroom.model.inbox import EVERY_MAILBOX
from postroom.model.mail.message import MessageRow
from postroom.model.mail.storage import MessageQuery
from postroom.model.memory import (
    MAIL_COLLECTION,
    EmbeddedQuery,
    Keyword,
    Memory,
    MemoryHit,
    MemoryQuery,
    Similar,
    collection_of,
    summary_of,
)
from postroom.model.page import Found, Slice
from postroom.store.ranking.collection import CollectionCache, Ranked, RankedCollection, Selection
from postroom.store.ranking.index import MAIL_CHARS, MAX_MAIL, count_unembedded
from postroom.store.search.index import IndexSearcher, SearchQuery
from postroom.store.sql.memories.memories import conditions_of
from postroom.store.sql.messages.message_search import message_row, message_rows, search_query_of
from postroom.store.sql.statements import any_of, from_text, moment, seconds, visible_numbers
from postroom.store.transaction import Row, Transaction, remembered

EXCERPT_CHARS = 200
_MIN_OVERLAP = 0.6
"""Two memories are similar if they share at least this part of their terms."""
_MAX_SIMILAR = 5
_TERMS_COMPARED = 24
_BATCH = 500

MEMORIES = """
    SELECT l.document, m.key, m.summary, m.text, m.tags, s.name, m.trust, m.is_stale, m.updated_at
      FROM ranking_documents l JOIN memories m ON m.number = l.item
      JOIN ranking_collections s ON s.number = l.collection
     WHERE l.collection = :collection AND l.document {among}
"""


class MemorySearcher:
    """Searches memories by terms and vector, by keywords, or for similar ones."""

    def __init__(self, cache: CollectionCache[Any, Any]) -> None:
        self._cache = cache

    def find(
        self, tx: Transaction, query: MemoryQuery, embedded: EmbeddedQuery
    ) -> Found[MemoryHit]:
        """The most relevant memories first, by terms and, if given, by vector."""
        with self._cache.collection(tx, collection_of(query.namespace)) as collection:
            allowed = _allowed(tx, collection, query)
            ranked = collection.rank(tx, embedded, allowed, query.page)
        terms = set(embedded.terms)
        rows = _rows(tx, collection.number, ranked.ids)
        return _found(ranked, rows, lambda row: around(row[3], terms, EXCERPT_CHARS))

    def find_embedded(
        self, tx: Transaction, query: MemoryQuery, embedded: EmbeddedQuery, *, max_unembedded: int
    ) -> Found[MemoryHit] | None:
        """`find`, or None if 1 to *max_unembedded* memories must be embedded first."""
        collection, max_count = collection_of(query.namespace), max_unembedded + 1
        if 0 < count_unembedded(tx, collection, embedded.model, max_count) <= max_unembedded:
            return None
        return self.find(tx, query, embedded)

    def find_keywords(
        self, tx: Transaction, query: MemoryQuery, keywords: Sequence[Keyword], *, needs_all: bool
    ) -> Found[MemoryHit]:
        """Memories with some keywords; rare and many keywords first."""
        with self._cache.collection(tx, collection_of(query.namespace)) as collection:
            filtered = _allowed(tx, collection, query)
            allowed = [(k.terms, _with_phrase(tx, collection, k, filtered)) for k in keywords]
            ranked = collection.rank_keywords(tx, allowed, needs_all=needs_all, page=query.page)
        terms = {term for keyword in keywords if keyword.phrase is None for term in keyword.terms}
        phrases = [keyword.phrase for keyword in keywords if keyword.phrase is not None]
        rows = _rows(tx, collection.number, ranked.ids)
        return _found(ranked, rows, lambda row: _marked(row, terms, phrases))

    def find_similar(
        self, tx: Transaction, memory: Memory, *, now: datetime
    ) -> tuple[Similar, ...]:
        """Memories of the namespace with another key and nearly the same meaning."""
        terms = question_terms(memory.text)
        if not terms:
            return ()
        with self._cache.collection(tx, collection_of(memory.namespace)) as collection:
            page = Slice(limit=2 * _MAX_SIMILAR)
            allowed = _allowed(tx, collection, MemoryQuery(memory.namespace, now))
            ranked = collection.rank(tx, EmbeddedQuery(terms[:_TERMS_COMPARED]), allowed, page)
        rows = _rows(tx, collection.number, ranked.ids).values()
        compared = [(_overlap(terms, row[3]), row) for row in rows if row[1] != memory.key]
        close = [(share, row) for share, row in compared if share >= _MIN_OVERLAP]
        return tuple(
            Similar(row[1], _summary(row), round(share, 2), row[6])
            for share, row in sorted(close, key=lambda pair: -pair[0])[:_MAX_SIMILAR]
        )


def _allowed(
    tx: Transaction, collection: RankedCollection[Selection, Any], query: MemoryQuery
) -> Selection:
    if query.tags or query.linked_to is not None or query.since is not None:
        where = conditions_of(tx, collection.number, query)
        return collection.only(_documents(tx, where.sql, where.params, collection.size))
    now = {"collection": collection.number, "now": seconds(query.now)}
    where_expired = "m.collection = :collection AND m.expires_at <= :now"
    return collection.all_but(_documents(tx, where_expired, now, collection.size))


def _documents(tx: Transaction, where: str, params: Mapping[str, object], size: int) -> list[int]:
    rows = tx.all(
        f"""SELECT l.document FROM memories m
              JOIN ranking_documents l ON l.collection = m.collection AND l.item = m.number
             WHERE {where} AND l.document < :size""",
        **params,
        size=size,
    )
    return [row[0] for row in rows]


def _with_phrase(
    tx: Transaction,
    collection: RankedCollection[Selection, Any],
    keyword: Keyword,
    filtered: Selection,
) -> Selection:
    """The documents that contain the phrase of a keyword, if it has one, ignoring case."""
    if keyword.phrase is None:
        return filtered
    documents = collection.with_terms(tx, keyword.terms, filtered)
    found: list[int] = []
    for start in range(0, len(documents), _BATCH):
        for row in _rows(tx, collection.number, documents[start : start + _BATCH]).values():
            fields = (row[3], row[2] or "", row[1], *from_text(row[4]))
            if any(keyword.phrase in fold(field) for field in fields):
                found.append(row[0])
    return collection.only(found)


def _rows(tx: Transaction, collection: int, documents: Sequence[int]) -> dict[int, Row]:
    among, params = any_of("document", documents)
    rows = tx.all(MEMORIES.format(among=among), collection=collection, **params)
    return {row[0]: row for row in rows}


def _found(ranked: Ranked, rows: dict[int, Row], excerpt: Callable[[Row], str]) -> Found[MemoryHit]:
    hits = tuple(
        MemoryHit(
            key=row[1],
            summary=_summary(row),
            relevance=relevance,
            score=relevance,
            excerpt=excerpt(row),
            tags=tuple(from_text(row[4])),
            namespace=row[5],
            trust=row[6],
            updated_at=moment(row[8]),
            stale=bool(row[7]) or None,
        )
        for document, relevance in zip(ranked.ids, ranked.relevances, strict=True)
        if (row := rows.get(document)) is not None
    )
    return Found(hits, ranked.total, ranked.offset, ranked.next)


def _marked(row: Row, terms: AbstractSet[str], phrases: Collection[str]) -> str:
    """The text around a keyword; summary, key or tags if it occurs only there."""
    excerpt = mark(row[3], terms, phrases, EXCERPT_CHARS)
    for other in (row[2] or "", row[1], ", ".join(from_text(row[4]))):
        if "<mark>" in excerpt:
            break
        found = mark(other, terms, phrases, EXCERPT_CHARS)
        excerpt = found if "<mark>" in found else excerpt
    return excerpt


def _overlap(terms: Sequence[str], text: str) -> float:
    own, other = frozenset(terms), frozenset(question_terms(text))
    return len(own & other) / len(own | other)


def _summary(row: Row) -> str:
    return summary_of(row[3]) if row[2] is None else row[2]


MAIL_EXCERPT_CHARS = 160
TEXTS = """
    SELECT message, coalesce(new_text, text) FROM bodies WHERE inbox {inboxes} AND message {among}
"""


class MailSearcher:
    """Searches mail by terms and vector."""

    def __init__(self, cache: CollectionCache[Any, Any], searcher: IndexSearcher) -> None:
        self._cache, self._searcher = cache, searcher

    def find(
        self, tx: Transaction, query: MessageQuery, embedded: EmbeddedQuery
    ) -> Found[MessageRow]:
        """Messages that pass the filters, without `q`, and match the terms or the vector.

        Raises:
            NotFound: the inbox or thread does not exist for the caller.
        """
        scope = _filter_query(tx, query)
        numbers = self._searcher.search(tx, scope).numbers
        with self._cache.collection(tx, MAIL_COLLECTION) as collection:
            collection.read_sources(tx)
            allowed = collection.of_messages(numbers)
            visible = visible_numbers(tx, query.visible)
            ranked = collection.rank(tx, embedded, allowed, query.page, inboxes=visible)
            complete = collection.count_complete(allowed, embedded)
        rows = {row[-1]: row for row in message_rows(tx, ranked.ids, scope.inboxes)}
        found = _message_rows(tx, ranked, rows, set(embedded.terms))
        unranked = len(numbers) - complete
        return Found(found, ranked.total, ranked.offset, ranked.next, unranked)

    def find_unindexed(self, tx: Transaction, query: MessageQuery, *, limit: int) -> list[int]:
        """The newest messages that a query needs and that are not in the collection yet.

        Those are messages that pass the filters, and the newest that the caller can see, because
        statistics are computed from them.

        Raises:
            NotFound: the inbox or thread does not exist for the caller.
        """
        filters = replace(query, q=None, page=Slice(limit=limit))
        return remembered(tx, (MailSearcher, filters), lambda: self._unindexed(tx, filters))

    def _unindexed(self, tx: Transaction, query: MessageQuery) -> list[int]:
        limit = query.page.limit
        visible = MessageQuery(visible=query.visible, mailbox=EVERY_MAILBOX, page=query.page)
        newest = self._searcher.search(tx, search_query_of(tx, visible)).numbers
        filtered = self._searcher.search(tx, _filter_query(tx, query)).numbers
        numbers = list(dict.fromkeys([*newest, *filtered]))
        with self._cache.collection(tx, MAIL_COLLECTION) as collection:
            collection.read_sources(tx)
            return collection.not_indexed(numbers)[:limit]


def _filter_query(tx: Transaction, query: MessageQuery) -> SearchQuery:
    """The filters without the text, for at most `MAX_MAIL` messages."""
    return search_query_of(tx, replace(query, q=None, page=Slice(limit=MAX_MAIL)))


def _message_rows(
    tx: Transaction, ranked: Ranked, rows: Mapping[int, Row], terms: set[str]
) -> tuple[MessageRow, ...]:
    among, params = any_of("number", ranked.ids)
    inboxes, scope = any_of("inbox", sorted({row[-2] for row in rows.values()}))
    texts: dict[int, str] = dict(
        tx.all(TEXTS.format(inboxes=inboxes, among=among), **params, **scope)
    )
    return tuple(
        replace(
            message_row(
                rows[number], around(texts[number][:MAIL_CHARS], terms, MAIL_EXCERPT_CHARS)
            ),
            relevance=relevance,
        )
        for number, relevance in zip(ranked.ids, ranked.relevances, strict=True)
        if number in rows
    )
