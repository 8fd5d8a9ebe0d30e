"""Mail found by its words and by its meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from postroom.mail.marking import around
from postroom.model.memory import MAIL_SHELF
from postroom.model.message import MessageRow
from postroom.model.page import Found, Slice
from postroom.model.stored import MessageQuery
from postroom.store.recall.library import Library
from postroom.store.recall.mail import MOST_MAIL
from postroom.store.recall.ranking import Question, Ranked, rank
from postroom.store.recall.shelf import Mask, Shelf
from postroom.store.recall.shelves import find_shelf
from postroom.store.recall.texts import MAIL_CHARS
from postroom.store.search.find import Finder
from postroom.store.sql.finding import message_rows, wanted_of
from postroom.store.sql.rows import message_row
from postroom.store.sql.values import any_of
from postroom.store.transaction import Row, Transaction

EXCERPT_CHARS = 160
TEXTS = """
    SELECT message, coalesce(new_text, text) FROM bodies WHERE inbox {inboxes} AND message {among}
"""


def find_mail(
    tx: Transaction, library: Library, finder: Finder, query: MessageQuery, question: Question
) -> Found[MessageRow]:
    """Messages that pass the filters and have the words or the meaning of a question.

    Raises:
        NotFound: the inbox or thread does not exist for the caller.
    """
    filters = replace(query, q=None, page=Slice(limit=MOST_MAIL))
    scope = wanted_of(tx, filters)
    numbers = finder.find(tx, scope).numbers
    shelf_number = find_shelf(tx, MAIL_SHELF)
    if shelf_number is None:
        return Found((), 0, query.page.offset, None)
    with library.shelf(tx, shelf_number) as shelf:
        ranked = rank(tx, shelf, question, _allowed(tx, shelf, numbers), query.page)
        wanted = [int(shelf.what[leaf]) for leaf in ranked.leaves]
    rows = {row[-1]: row for row in message_rows(tx, wanted, scope.inboxes)}
    found = _shown(tx, wanted, rows, ranked, set(question.terms))
    return Found(found, ranked.total, ranked.offset, ranked.next)


def _allowed(tx: Transaction, shelf: Shelf, numbers: Sequence[int]) -> Mask:
    shelf.read_what(tx)
    return np.isin(shelf.what[: shelf.size], np.array(numbers, np.int64))


def _shown(
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
