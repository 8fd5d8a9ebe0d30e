"""Searching memories: by words and meaning, by keywords, and for those that say the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from postroom.mail.fold import fold
from postroom.mail.marking import around, mark
from postroom.mail.terms import question_terms
from postroom.model.memory import (
    Keyword,
    Memory,
    MemoryHit,
    MemoryQuery,
    Similar,
    shelf_of,
    summary_of,
)
from postroom.model.page import Found, Slice
from postroom.store.recall.library import Library
from postroom.store.recall.ranking import Question, Ranked, rank, rank_keywords
from postroom.store.recall.shelf import Mask, Shelf
from postroom.store.recall.shelves import count_unlearnt, find_shelf
from postroom.store.sql.memory_listing import conditions_of
from postroom.store.sql.values import any_of, from_text, moment, seconds
from postroom.store.transaction import Row, Transaction

EXCERPT_CHARS = 200
_SIMILAR = 0.6
"""The share of words that two memories have in common when they say nearly the same."""
_MOST_SIMILAR = 5
_TERMS_COMPARED = 24
_AT_ONCE = 500

OF_LEAVES = """
    SELECT l.leaf, m.key, m.summary, m.text, m.tags, s.name, m.trust, m.is_stale, m.updated_at
      FROM leaves l JOIN memories m ON m.number = l.what JOIN shelves s ON s.number = l.shelf
     WHERE l.shelf = :shelf AND l.leaf {among}
"""


def find_memories(
    tx: Transaction, library: Library, query: MemoryQuery, question: Question
) -> Found[MemoryHit]:
    """Memories that have the words or the meaning of a question, the most relevant first."""
    number = find_shelf(tx, shelf_of(query.namespace))
    if number is None:
        return Found((), 0, query.page.offset, None)
    with library.shelf(tx, number) as shelf:
        ranked = rank(tx, shelf, question, _allowed(tx, shelf, query), query.page)
    terms = set(question.terms)
    return _found(
        ranked, _rows(tx, number, ranked.leaves), lambda row: around(row[3], terms, EXCERPT_CHARS)
    )


def find_learnt(
    tx: Transaction, library: Library, query: MemoryQuery, question: Question, few: int
) -> Found[MemoryHit] | None:
    """The same, or None if a few at most have no vector yet: whoever asks will learn them first."""
    if 0 < count_unlearnt(tx, shelf_of(query.namespace), question.model, few + 1) <= few:
        return None
    return find_memories(tx, library, query, question)


def find_keywords(
    tx: Transaction,
    library: Library,
    query: MemoryQuery,
    keywords: Sequence[Keyword],
    *,
    needs_all: bool,
) -> Found[MemoryHit]:
    """Memories that have some keywords, those with the rarest and most of them first."""
    number = find_shelf(tx, shelf_of(query.namespace))
    if number is None:
        return Found((), 0, query.page.offset, None)
    with library.shelf(tx, number) as shelf:
        filtered = _allowed(tx, shelf, query)
        allowed = [
            filtered if keyword.phrase is None else _with_phrase(tx, shelf, keyword, filtered)
            for keyword in keywords
        ]
        ranked = rank_keywords(
            tx,
            shelf,
            [keyword.terms for keyword in keywords],
            needs_all=needs_all,
            allowed=allowed,
            page=query.page,
        )
    terms = {term for keyword in keywords if keyword.phrase is None for term in keyword.terms}
    phrases = [keyword.phrase for keyword in keywords if keyword.phrase is not None]
    return _found(
        ranked, _rows(tx, number, ranked.leaves), lambda row: _marked(row, terms, phrases)
    )


def _allowed(tx: Transaction, shelf: Shelf, query: MemoryQuery) -> Mask | None:
    """The leaves that pass the filters; None if all do."""
    if query.tags or query.linked_to is not None or query.since is not None:
        where = conditions_of(tx, shelf.number, query)
        mask = np.zeros(shelf.size, np.bool_)
        mask[_leaves(tx, where.sql, where.params, shelf.size)] = True
        return mask
    now = {"shelf": shelf.number, "now": seconds(query.now)}
    expired = _leaves(tx, "m.shelf = :shelf AND m.expires_at <= :now", now, shelf.size)
    if not expired:
        return None
    mask = np.ones(shelf.size, np.bool_)
    mask[expired] = False
    return mask


def _leaves(tx: Transaction, where: str, params: Mapping[str, object], size: int) -> list[int]:
    rows = tx.all(
        f"""SELECT l.leaf FROM memories m JOIN leaves l ON l.shelf = m.shelf AND l.what = m.number
             WHERE {where} AND l.leaf < :size""",
        **params,
        size=size,
    )
    return [row[0] for row in rows]


def _with_phrase(tx: Transaction, shelf: Shelf, keyword: Keyword, filtered: Mask | None) -> Mask:
    """The leaves in whose text a phrase stands as it is written, but in any case."""
    entries = shelf.entries(tx, keyword.terms)
    mask = np.zeros(shelf.size, np.bool_)
    if len(entries) < len(set(keyword.terms)):
        return mask
    found = [leaves for leaves, _ in entries.values()]
    leaves = found[0]
    for others in found[1:]:
        leaves = np.intersect1d(leaves, others)
    if filtered is not None:
        leaves = leaves[filtered[leaves]]
    for start in range(0, len(leaves), _AT_ONCE):
        for row in _rows(tx, shelf.number, leaves[start : start + _AT_ONCE].tolist()).values():
            mask[row[0]] = _has_phrase(row, keyword.phrase or "")
    return mask


def _has_phrase(row: Row, phrase: str) -> bool:
    fields = (row[3], row[2] or "", row[1], *from_text(row[4]))
    return any(phrase in fold(field) for field in fields)


def _rows(tx: Transaction, shelf: int, leaves: Sequence[int]) -> dict[int, Row]:
    among, params = any_of("leaf", leaves)
    rows = tx.all(OF_LEAVES.format(among=among), shelf=shelf, **params)
    return {row[0]: row for row in rows}


def _found(ranked: Ranked, rows: dict[int, Row], excerpt: Callable[[Row], str]) -> Found[MemoryHit]:
    hits = tuple(
        _hit(rows[leaf], relevance, excerpt(rows[leaf]))
        for leaf, relevance in zip(ranked.leaves, ranked.relevances, strict=True)
        if leaf in rows
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
    """The text around a keyword; if it is only in summary, key or tags, that instead."""
    excerpt = mark(row[3], terms, phrases, EXCERPT_CHARS)
    for other in (row[2] or "", row[1], ", ".join(from_text(row[4]))):
        if "<mark>" in excerpt:
            break
        found = mark(other, terms, phrases, EXCERPT_CHARS)
        excerpt = found if "<mark>" in found else excerpt
    return excerpt


def find_similar(
    tx: Transaction, library: Library, memory: Memory, query: MemoryQuery
) -> tuple[Similar, ...]:
    """Memories under other keys that have most of their words in common with this one."""
    number = find_shelf(tx, shelf_of(memory.namespace))
    terms = question_terms(memory.text)
    if number is None or not terms:
        return ()
    with library.shelf(tx, number) as shelf:
        page = Slice(limit=2 * _MOST_SIMILAR)
        allowed = _allowed(tx, shelf, query)
        ranked = rank(tx, shelf, Question(terms[:_TERMS_COMPARED]), allowed, page)
    own = frozenset(question_terms(memory.text))
    rows = _rows(tx, number, ranked.leaves).values()
    compared = [(_overlap(own, row[3]), row) for row in rows if row[1] != memory.key]
    close = sorted((pair for pair in compared if pair[0] >= _SIMILAR), key=lambda pair: -pair[0])
    return tuple(
        Similar(row[1], summary_of(row[3]) if row[2] is None else row[2], round(share, 2))
        for share, row in close[:_MOST_SIMILAR]
    )


def _overlap(own: frozenset[str], text: str) -> float:
    other = frozenset(question_terms(text))
    return len(own & other) / len(own | other)
