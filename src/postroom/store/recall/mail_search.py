"""Mail found by its words and by its meaning."""

from __future__ import annotations

from collections.abc import Sequence
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
from postroom.store.search.find import Finder
from postroom.store.sql.finding import matching_numbers, message_rows
from postroom.store.sql.rows import message_row
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

EXCERPT_CHARS = 160
TEXTS = """
    SELECT message, coalesce(new_text, text) FROM bodies WHERE message {among}
"""


def find_mail(
    tx: Transaction, library: Library, finder: Finder, query: MessageQuery, question: Question
) -> Found[MessageRow]:
    """Messages that pass the filters and have the words or the meaning of a question.

    Raises:
        NotFound: the inbox or thread does not exist for the caller.
    """
    filters = replace(query, q=None, page=Slice(limit=MOST_MAIL))
    numbers = matching_numbers(tx, filters, finder)
    shelf_number = find_shelf(tx, MAIL_SHELF)
    if shelf_number is None:
        return Found((), 0, query.page.offset, None)
    with library.shelf(tx, shelf_number) as shelf:
        ranked = rank(tx, shelf, question, _allowed(tx, shelf, numbers), query.page)
        wanted = [int(shelf.what[leaf]) for leaf in ranked.leaves]
    return Found(
        _rows(tx, wanted, ranked, set(question.terms)), ranked.total, ranked.offset, ranked.next
    )


def _allowed(tx: Transaction, shelf: Shelf, numbers: Sequence[int]) -> Mask:
    shelf.read_what(tx)
    return np.isin(shelf.what[: shelf.size], np.array(numbers, np.int64))


def _rows(
    tx: Transaction, numbers: Sequence[int], ranked: Ranked, terms: set[str]
) -> tuple[MessageRow, ...]:
    among, params = any_of("number", numbers)
    texts = {row[0]: row[1] for row in tx.all(TEXTS.format(among=among), **params)}
    rows = {row[-1]: row for row in message_rows(tx, numbers)}
    return tuple(
        replace(
            message_row(rows[number], around(texts[number], terms, EXCERPT_CHARS)),
            relevance=relevance,
        )
        for number, relevance in zip(numbers, ranked.relevances, strict=True)
        if number in rows
    )
