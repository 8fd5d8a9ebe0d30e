"""Searching with the index: which messages of all segments match, as a mask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from postroom.store.search.arrays import Bools
from postroom.store.search.characters import split_query
from postroom.store.search.junctions import find_junctions
from postroom.store.search.kinds import COLUMNS, STREAM, Kind
from postroom.store.search.rows import mark, unmark
from postroom.store.search.sets import (
    HIDDEN,
    REMOVED,
    WITH_FILE,
    inbox_set,
    label_set,
    mailbox_set,
)
from postroom.store.search.shelf import Orders, Shelf
from postroom.store.search.wanted import EVERYWHERE, Wanted
from postroom.store.search.words import find_words
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

SETS = "SELECT name, segment, value FROM search_sets WHERE name {among}"
CUT = """
    SELECT segment, value FROM search_rows
     WHERE segment {among} AND kind = :kind AND key = :key AND part = 0
"""
TEXTS = "SELECT message, {column} FROM bodies WHERE message {among}"
_AT_ONCE = 200

_Sets = dict[str, dict[int, bytes]]


def look_up(tx: Transaction, wanted: Wanted, shelf: Shelf, orders: Orders) -> Bools:
    """The messages in segments that are wanted."""
    mask = _scope(tx, wanted, shelf)
    _limit_dates(tx, wanted, shelf, orders, mask)
    for stream, text in wanted.texts():
        mask &= _with_text(tx, shelf, orders, stream, text, mask)
    return mask


def _scope(tx: Transaction, wanted: Wanted, shelf: Shelf) -> Bools:
    """All but texts and dates."""
    inboxes = [inbox_set(inbox) for inbox in wanted.inboxes or ()]
    all_of = [label_set(label) for label in wanted.labels]
    none_of = [REMOVED]
    if wanted.mailbox is None:
        none_of.append(HIDDEN)
    elif wanted.mailbox != EVERYWHERE:
        all_of.append(mailbox_set(wanted.mailbox))
    if wanted.has_attachment is not None:
        (all_of if wanted.has_attachment else none_of).append(WITH_FILE)
    sets = _read_sets(tx, [*inboxes, *all_of, *none_of])
    mask = np.ones(shelf.size, np.bool_)
    if wanted.inboxes is not None:
        mask = _union(shelf, sets, inboxes)
    for name in all_of:
        mask &= _union(shelf, sets, [name])
    for name in none_of:
        for segment, value in sets.get(name, {}).items():
            unmark(shelf.part(mask, segment), value)
    return mask


def _read_sets(tx: Transaction, names: Sequence[str]) -> _Sets:
    sets: _Sets = {}
    for first in range(0, len(names), _AT_ONCE):
        among, params = any_of("name", names[first : first + _AT_ONCE])
        for name, segment, value in tx.all(SETS.format(among=among), **params):
            sets.setdefault(name, {})[segment] = value
    return sets


def _union(shelf: Shelf, sets: _Sets, names: Sequence[str]) -> Bools:
    union = shelf.none()
    for name in names:
        for segment, value in sets.get(name, {}).items():
            mark(shelf.part(union, segment), value)
    return union


def _limit_dates(
    tx: Transaction, wanted: Wanted, shelf: Shelf, orders: Orders, mask: Bools
) -> None:
    """Clear what is outside the dates; only segments that reach over one are looked at."""
    for segment, part in shelf.parts(mask):
        if wanted.since is not None and segment.oldest < wanted.since:
            dates = orders.of(tx, segment).dates
            part[: np.searchsorted(dates, wanted.since)] = False
        if wanted.before is not None and segment.newest >= wanted.before:
            dates = orders.of(tx, segment).dates
            part[np.searchsorted(dates, wanted.before) :] = False


def _with_text(
    tx: Transaction, shelf: Shelf, orders: Orders, stream: int, text: str, scope: Bools
) -> Bools:
    """Those in the scope, and perhaps others, that have a text."""
    segments = shelf.holders(scope)
    if not segments:
        return shelf.none()
    first, rest = split_query(text)
    if rest:
        found = find_junctions(tx, shelf, stream, first.encode(), rest, segments)
        sure, doubtful = found.sure, found.doubtful
    else:
        sure, doubtful = find_words(tx, shelf, stream, first.encode(), segments), shelf.none()
    among, params = any_of("segment", segments)
    kind = STREAM * stream + Kind.CUT
    for segment, value in tx.all(CUT.format(among=among), **params, kind=kind, key=b""):
        mark(shelf.part(doubtful, segment), value)
        unmark(shelf.part(sure, segment), value)
    doubtful &= scope
    doubtful &= ~sure
    return sure | _having(tx, shelf, orders, stream, text, doubtful)


def _having(
    tx: Transaction, shelf: Shelf, orders: Orders, stream: int, text: str, doubtful: Bools
) -> Bools:
    """Those of the doubtful that have the text: read and see."""
    having = shelf.none()
    for segment, part in shelf.parts(doubtful):
        places = np.flatnonzero(part)
        if not len(places):
            continue
        numbers = orders.of(tx, segment).numbers[places].tolist()
        found = _numbers_having(tx, stream, text, numbers)
        kept = [number in found for number in numbers]
        shelf.part(having, segment.number)[places[kept]] = True
    return having


def _numbers_having(tx: Transaction, stream: int, text: str, numbers: Sequence[int]) -> set[int]:
    found = set[int]()
    for first in range(0, len(numbers), _AT_ONCE):
        among, params = any_of("message", numbers[first : first + _AT_ONCE])
        sql = TEXTS.format(column=COLUMNS[stream], among=among)
        found |= {number for number, own in tx.all(sql, **params) if text in own}
    return found
