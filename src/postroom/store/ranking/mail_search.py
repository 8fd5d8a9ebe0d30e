"""Ranked search of mail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from postroom.mail.text.terms import around
from postroom.model.inbox import EVERY_MAILBOX
from postroom.model.memory import MAIL_COLLECTION
from postroom.model.message import MessageRow
from postroom.model.page import Found, Slice
from postroom.model.storage import MessageQuery
from postroom.store.ranking.collection_reader import CollectionCache, CollectionReader
from postroom.store.ranking.documents import MAIL_CHARS, MAX_MAIL, find_collection
from postroom.store.ranking.index import Question
from postroom.store.ranking.scoring import Ranked, rank
from postroom.store.ranking.statistics import Mask
from postroom.store.search.index import IndexSearcher, SearchQuery
from postroom.store.sql.messages.message_search import message_row, message_rows, search_query_of
from postroom.store.sql.values import any_of, visible_numbers
from postroom.store.transaction import Row, Transaction, remembered

EXCERPT_CHARS = 160
TEXTS = """
    SELECT message, coalesce(new_text, text) FROM bodies WHERE inbox {inboxes} AND message {among}
"""


class MailSearcher:
    """Searches mail by terms and vector."""

    def __init__(self, cache: CollectionCache) -> None:
        self._cache = cache

    def find(
        self,
        tx: Transaction,
        searcher: IndexSearcher,
        query: MessageQuery,
        question: Question,
    ) -> Found[MessageRow]:
        """Messages that pass the filters and match the terms or the vector.

        Raises:
            NotFound: the inbox or thread does not exist for the caller.
        """
        scope = _filter_query(tx, query)
        numbers = searcher.search(tx, scope).numbers
        collection_number = find_collection(tx, MAIL_COLLECTION)
        if collection_number is None:
            return Found((), 0, query.page.offset, None)
        with self._cache.collection(tx, collection_number) as collection:
            collection.read_sources(tx)
            view = collection.view(visible_numbers(tx, query.visible))
            allowed = _allowed(collection, numbers)
            ranked = rank(tx, view, question, allowed, query.page, names=collection.sources)
        rows = {row[-1]: row for row in message_rows(tx, ranked.names, scope.inboxes)}
        found = _message_rows(tx, ranked.names, rows, ranked, set(question.terms))
        return Found(found, ranked.total, ranked.offset, ranked.next)

    def find_unindexed(
        self,
        tx: Transaction,
        searcher: IndexSearcher,
        query: MessageQuery,
        limit: int,
    ) -> list[int]:
        """The newest messages that a query needs and that are not in the collection yet.

        Those are messages that pass the filters, and the newest that the caller can see, because
        statistics are computed from them.

        Raises:
            NotFound: the inbox or thread does not exist for the caller.
        """
        filters = replace(query, q=None, page=Slice(limit=limit))
        key = (MailSearcher, filters)
        return remembered(tx, key, lambda: self._unindexed(tx, searcher, filters))

    def _unindexed(
        self, tx: Transaction, searcher: IndexSearcher, query: MessageQuery
    ) -> list[int]:
        limit = query.page.limit
        visible = MessageQuery(visible=query.visible, mailbox=EVERY_MAILBOX, page=query.page)
        newest = searcher.search(tx, search_query_of(tx, visible)).numbers
        filtered = searcher.search(tx, _filter_query(tx, query)).numbers
        numbers = list(dict.fromkeys([*newest, *filtered]))
        collection_number = find_collection(tx, MAIL_COLLECTION)
        if collection_number is None:
            return numbers[:limit]
        with self._cache.collection(tx, collection_number) as collection:
            collection.read_sources(tx)
            live = collection.sources[: collection.size][collection.is_live[: collection.size]]
        missing = np.isin(np.array(numbers, np.int64), live, invert=True)
        return [numbers[index] for index in np.flatnonzero(missing)[:limit]]


def _filter_query(tx: Transaction, query: MessageQuery) -> SearchQuery:
    """The filters without the text, for at most `MAX_MAIL` messages."""
    return search_query_of(tx, replace(query, q=None, page=Slice(limit=MAX_MAIL)))


def _allowed(collection: CollectionReader, numbers: Sequence[int]) -> Mask:
    allowed: Mask = np.isin(collection.sources[: collection.size], np.array(numbers, np.int64))
    return allowed & collection.is_live[: collection.size]


def _message_rows(
    tx: Transaction,
    numbers: Sequence[int],
    rows: Mapping[int, Row],
    ranked: Ranked,
    terms: set[str],
) -> tuple[MessageRow, ...]:
    among, params = any_of("number", numbers)
    inboxes, scope = any_of("inbox", sorted({row[-2] for row in rows.values()}))
    found = tx.all(TEXTS.format(inboxes=inboxes, among=among), **params, **scope)
    texts = {row[0]: row[1] for row in found}
    return tuple(
        replace(
            message_row(rows[number], around(texts[number][:MAIL_CHARS], terms, EXCERPT_CHARS)),
            relevance=relevance,
        )
        for number, relevance in zip(numbers, ranked.relevances, strict=True)
        if number in rows
    )
