"""Ranked search of memories: by terms and vector, by keywords, and for similar ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from postroom.mail.text.fold import fold
from postroom.mail.text.terms import around, mark, question_terms
from postroom.model.memory import (
    Keyword,
    Memory,
    MemoryHit,
    MemoryQuery,
    Similar,
    collection_of,
    summary_of,
)
from postroom.model.page import Found, Slice
from postroom.store.ranking.collection_reader import CollectionCache, CollectionReader
from postroom.store.ranking.documents import count_unembedded, find_collection
from postroom.store.ranking.index import Question
from postroom.store.ranking.scoring import Ranked, rank, rank_keywords
from postroom.store.ranking.statistics import Mask
from postroom.store.sql.memories.memories import conditions_of
from postroom.store.sql.values import any_of, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

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

    def __init__(self, cache: CollectionCache) -> None:
        self._cache = cache

    def find(self, tx: Transaction, query: MemoryQuery, question: Question) -> Found[MemoryHit]:
        number = find_collection(tx, collection_of(query.namespace))
        if number is None:
            return Found((), 0, query.page.offset, None)
        with self._cache.collection(tx, number) as collection:
            ranked = rank(
                tx, collection.view(), question, _allowed(tx, collection, query), query.page
            )
        terms = set(question.terms)
        return _found(
            ranked,
            _rows(tx, number, ranked.names),
            lambda row: around(row[3], terms, EXCERPT_CHARS),
        )

    def find_embedded(
        self,
        tx: Transaction,
        query: MemoryQuery,
        question: Question,
        max_unembedded: int,
    ) -> Found[MemoryHit] | None:
        """`find`, or None if up to *max_unembedded* memories must be embedded first."""
        collection, most = collection_of(query.namespace), max_unembedded + 1
        if 0 < count_unembedded(tx, collection, question.model, most) <= max_unembedded:
            return None
        return self.find(tx, query, question)

    def find_keywords(
        self,
        tx: Transaction,
        query: MemoryQuery,
        keywords: Sequence[Keyword],
        *,
        needs_all: bool,
    ) -> Found[MemoryHit]:
        """Memories with some keywords; rare and many keywords first."""
        number = find_collection(tx, collection_of(query.namespace))
        if number is None:
            return Found((), 0, query.page.offset, None)
        with self._cache.collection(tx, number) as collection:
            filtered = _allowed(tx, collection, query)
            allowed = [
                filtered
                if keyword.phrase is None
                else _with_phrase(tx, collection, keyword, filtered)
                for keyword in keywords
            ]
            ranked = rank_keywords(
                tx,
                collection.view(),
                [keyword.terms for keyword in keywords],
                needs_all=needs_all,
                allowed=allowed,
                page=query.page,
            )
        terms = {term for keyword in keywords if keyword.phrase is None for term in keyword.terms}
        phrases = [keyword.phrase for keyword in keywords if keyword.phrase is not None]
        return _found(
            ranked, _rows(tx, number, ranked.names), lambda row: _marked(row, terms, phrases)
        )

    def find_similar(
        self, tx: Transaction, memory: Memory, query: MemoryQuery
    ) -> tuple[Similar, ...]:
        number = find_collection(tx, collection_of(memory.namespace))
        terms = question_terms(memory.text)
        if number is None or not terms:
            return ()
        with self._cache.collection(tx, number) as collection:
            page = Slice(limit=2 * _MAX_SIMILAR)
            allowed = _allowed(tx, collection, query)
            ranked = rank(tx, collection.view(), Question(terms[:_TERMS_COMPARED]), allowed, page)
        own = frozenset(question_terms(memory.text))
        rows = _rows(tx, number, ranked.names).values()
        compared = [(_overlap(own, row[3]), row) for row in rows if row[1] != memory.key]
        close = sorted(
            (pair for pair in compared if pair[0] >= _MIN_OVERLAP), key=lambda pair: -pair[0]
        )
        return tuple(
            Similar(
                row[1], summary_of(row[3]) if row[2] is None else row[2], round(share, 2), row[6]
            )
            for share, row in close[:_MAX_SIMILAR]
        )


def _allowed(tx: Transaction, collection: CollectionReader, query: MemoryQuery) -> Mask | None:
    """The documents that pass the filters; None if all do."""
    if query.tags or query.linked_to is not None or query.since is not None:
        where = conditions_of(tx, collection.number, query)
        mask = np.zeros(collection.size, np.bool_)
        mask[_documents(tx, where.sql, where.params, collection.size)] = True
        return mask
    now = {"collection": collection.number, "now": seconds(query.now)}
    expired = _documents(
        tx, "m.collection = :collection AND m.expires_at <= :now", now, collection.size
    )
    if not expired:
        return None
    mask = np.ones(collection.size, np.bool_)
    mask[expired] = False
    return mask


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
    tx: Transaction, collection: CollectionReader, keyword: Keyword, filtered: Mask | None
) -> Mask:
    """The documents that contain a phrase, ignoring case."""
    entries = collection.view().entries(tx, keyword.terms)
    mask = np.zeros(collection.size, np.bool_)
    if len(entries) < len(set(keyword.terms)):
        return mask
    found = [documents for documents, _ in entries.values()]
    documents = found[0]
    for others in found[1:]:
        documents = np.intersect1d(documents, others)
    if filtered is not None:
        documents = documents[filtered[documents]]
    for start in range(0, len(documents), _BATCH):
        for row in _rows(
            tx, collection.number, documents[start : start + _BATCH].tolist()
        ).values():
            mask[row[0]] = _has_phrase(row, keyword.phrase or "")
    return mask


def _has_phrase(row: Row, phrase: str) -> bool:
    fields = (row[3], row[2] or "", row[1], *from_text(row[4]))
    return any(phrase in fold(field) for field in fields)


def _rows(tx: Transaction, collection: int, documents: Sequence[int]) -> dict[int, Row]:
    among, params = any_of("document", documents)
    rows = tx.all(MEMORIES.format(among=among), collection=collection, **params)
    return {row[0]: row for row in rows}


def _found(ranked: Ranked, rows: dict[int, Row], excerpt: Callable[[Row], str]) -> Found[MemoryHit]:
    hits = tuple(
        _hit(rows[document], relevance, excerpt(rows[document]))
        for document, relevance in zip(ranked.names, ranked.relevances, strict=True)
        if document in rows
    )
    return Found(hits, ranked.total, ranked.offset, ranked.next)


def _hit(row: Row, relevance: float, excerpt: str) -> MemoryHit:
    return MemoryHit(
        key=row[1],
        summary=summary_of(row[3]) if row[2] is None else row[2],
        relevance=relevance,
        score=relevance,
        excerpt=excerpt,
        tags=tuple(from_text(row[4])),
        namespace=row[5],
        trust=row[6],
        updated_at=moment(row[8]),
        stale=bool(row[7]) or None,
    )


def _marked(row: Row, terms: AbstractSet[str], phrases: Collection[str]) -> str:
    """The text around a keyword; summary, key or tags if it occurs only there."""
    excerpt = mark(row[3], terms, phrases, EXCERPT_CHARS)
    for other in (row[2] or "", row[1], ", ".join(from_text(row[4]))):
        if "<mark>" in excerpt:
            break
        found = mark(other, terms, phrases, EXCERPT_CHARS)
        excerpt = found if "<mark>" in found else excerpt
    return excerpt


def _overlap(own: frozenset[str], text: str) -> float:
    other = frozenset(question_terms(text))
    return len(own & other) / len(own | other)
