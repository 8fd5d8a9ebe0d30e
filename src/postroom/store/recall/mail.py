"""Mail on its shelf: put there the newest first, and taken off with the message."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.model.memory import MAIL_SHELF, Unlearnt
from postroom.store.recall.shelves import drop_leaf, find_shelf, put_leaf, shelf_for
from postroom.store.recall.texts import text_of
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

MOST_MAIL = 50_000

SPAN = """
    SELECT min(l.what), max(l.what), (SELECT leaves FROM shelves WHERE number = :shelf)
      FROM leaves l WHERE l.shelf = :shelf
"""
NEWER = "SELECT number FROM messages WHERE number > :newest ORDER BY number LIMIT :limit"
OLDER = "SELECT number FROM messages WHERE number < :oldest ORDER BY number DESC LIMIT :limit"
OLDEST = "SELECT what FROM leaves WHERE shelf = :shelf ORDER BY what LIMIT :limit"
_LAST = 2**62


def shelve_mail(tx: Transaction, limit: int) -> int:
    """Put some messages on the shelf of mail, and return how many."""
    shelf = shelf_for(tx, MAIL_SHELF)
    oldest, newest, count = _span(tx, shelf)
    numbers = [row[0] for row in tx.all(NEWER, newest=newest, limit=limit)] if count else []
    if len(numbers) < limit and count < MOST_MAIL:
        room = min(limit - len(numbers), MOST_MAIL - count)
        numbers += [row[0] for row in tx.all(OLDER, oldest=oldest, limit=room)]
    for number in numbers:
        put_leaf(tx, shelf, number, text_of(tx, "mail", number).words)
    over = count + len(numbers) - MOST_MAIL
    if over > 0:
        for (number,) in tx.all(OLDEST, shelf=shelf, limit=over):
            drop_leaf(tx, shelf, number)
    return len(numbers)


def _span(tx: Transaction, shelf: int) -> tuple[int, int, int]:
    """The first and the last message on the shelf, and how many there are."""
    row = tx.one(SPAN, shelf=shelf)
    oldest, newest, count = row or (None, None, 0)
    return (_LAST if oldest is None else oldest), (newest or 0), count


def has_unshelved(tx: Transaction, *, starts: bool = False) -> bool:
    """Whether there is mail that belongs on the shelf, if there is or shall be a shelf."""
    shelf = find_shelf(tx, MAIL_SHELF)
    if shelf is None:
        return starts
    oldest, newest, count = _span(tx, shelf)
    if count and tx.all(NEWER, newest=newest, limit=1):
        return True
    return count < MOST_MAIL and bool(tx.all(OLDER, oldest=oldest, limit=1))


def unlearnt_mail(tx: Transaction, numbers: Sequence[int], model: str) -> list[Unlearnt]:
    """Those of some messages that are on the shelf without a vector of a model."""
    among, params = any_of("number", numbers)
    rows = tx.all(
        f"""SELECT l.shelf, l.leaf, l.what FROM leaves l JOIN shelves s ON s.number = l.shelf
             WHERE s.kind = :kind AND s.name = :name AND l.what {among}
               AND (l.vector IS NULL OR l.model < :model OR l.model > :model)""",
        model=model,
        kind=MAIL_SHELF[0],
        name=MAIL_SHELF[1],
        **params,
    )
    return [Unlearnt(row[0], row[1], text_of(tx, "mail", row[2]).meaning) for row in rows]


def unshelve_mail(tx: Transaction, numbers: Sequence[int]) -> None:
    """Take messages off the shelf of mail, if there is one."""
    shelf = find_shelf(tx, MAIL_SHELF)
    if shelf is not None:
        for number in numbers:
            drop_leaf(tx, shelf, number)
