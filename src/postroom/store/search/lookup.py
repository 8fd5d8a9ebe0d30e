"""Searching with the index: which messages of all segments match, as a mask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from postroom.store.search.arrays import Bools
from postroom.store.search.characters import split_query
from postroom.store.search.junctions import find_junctions
from postroom.store.search.kinds import COLUMNS
from postroom.store.search.rows import mark, unmark
from postroom.store.search.sets import (
    HIDDEN,
    REMOVED,
    WITH_FILE,
    cut_set,
    inbox_set,
    label_set,
    mailbox_set,
)
from postroom.store.search.shelf import Orders, Shelf
from postroom.store.search.wanted import EVERYWHERE, Wanted
from postroom.store.search.words import find_words
from postroom.store.sql.values import CONTAINS, any_of, is_storable, pattern
from postroom.store.transaction import Transaction

SETS = "SELECT name, segment, value FROM search_sets WHERE name {among}"
TEXTS = "SELECT message FROM search_texts WHERE message {among} AND {column} {contains}"
_AT_ONCE = 200


class Lookup:
    """One question to the index."""

    def __init__(self, tx: Transaction, wanted: Wanted, shelf: Shelf, orders: Orders) -> None:
        self._tx = tx
        self._wanted = wanted
        self._shelf = shelf
        self._orders = orders
        self._all_of = [label_set(label) for label in wanted.labels]
        self._none_of = [REMOVED]
        if wanted.mailbox is None:
            self._none_of.append(HIDDEN)
        elif wanted.mailbox != EVERYWHERE:
            self._all_of.append(mailbox_set(wanted.mailbox))
        if wanted.has_attachment is not None:
            (self._all_of if wanted.has_attachment else self._none_of).append(WITH_FILE)
        self._inboxes = [inbox_set(inbox) for inbox in wanted.inboxes or ()]
        cut = [cut_set(stream) for stream, _ in wanted.texts()]
        self._sets = self._read([*self._inboxes, *self._all_of, *self._none_of, *cut])

    def mask(self) -> Bools:
        """The messages in segments that are wanted."""
        mask = self._scope()
        self._limit_dates(mask)
        for stream, text in self._wanted.texts():
            segments = self._shelf.holders(mask)
            mask &= self._with_text(stream, text, mask, segments)
        return mask

    def _read(self, names: Sequence[str]) -> dict[str, list[tuple[int, bytes]]]:
        sets: dict[str, list[tuple[int, bytes]]] = {}
        for first in range(0, len(names), _AT_ONCE):
            among, params = any_of("name", names[first : first + _AT_ONCE])
            for name, segment, value in self._tx.all(SETS.format(among=among), **params):
                sets.setdefault(name, []).append((segment, value))
        return sets

    def _scope(self) -> Bools:
        """All but texts and dates."""
        if self._wanted.inboxes is None:
            mask = np.ones(self._shelf.size, np.bool_)
        else:
            mask = self._union(self._inboxes)
        for name in self._all_of:
            mask &= self._union([name])
        for name in self._none_of:
            for segment, value in self._sets.get(name, ()):
                unmark(self._shelf.part(mask, segment), value)
        return mask

    def _union(self, names: Sequence[str]) -> Bools:
        union = self._shelf.none()
        for name in names:
            for segment, value in self._sets.get(name, ()):
                mark(self._shelf.part(union, segment), [value])
        return union

    def _limit_dates(self, mask: Bools) -> None:
        """Clear what is outside the dates; only segments that reach over one are looked at."""
        since, before = self._wanted.since, self._wanted.before
        if since is None and before is None:
            return
        for segment, part in self._shelf.parts(mask):
            if since is not None and segment.oldest < since:
                dates = self._orders.of(self._tx, segment).dates
                part[: np.searchsorted(dates, since)] = False
            if before is not None and segment.newest >= before:
                dates = self._orders.of(self._tx, segment).dates
                part[np.searchsorted(dates, before) :] = False

    def _with_text(self, stream: int, text: str, scope: Bools, segments: Sequence[int]) -> Bools:
        """Those in the scope, and perhaps others, that have a text."""
        if not segments:
            return self._shelf.none()
        first, rest = split_query(text)
        if rest:
            found = find_junctions(self._tx, self._shelf, stream, first, rest, segments)
            sure, doubtful = found.sure, found.doubtful
        else:
            sure = find_words(self._tx, self._shelf, stream, first, segments)
            doubtful = self._shelf.none()
        for segment, value in self._sets.get(cut_set(stream), ()):
            mark(self._shelf.part(doubtful, segment), [value])
            unmark(self._shelf.part(sure, segment), value)
        if doubtful.any():
            doubtful &= scope
            doubtful[sure] = False
            self._settle(stream, text, sure, doubtful)
        return sure

    def _settle(self, stream: int, text: str, sure: Bools, doubtful: Bools) -> None:
        """Read the texts of the doubtful, and be sure of those that have what is wanted."""
        places = np.flatnonzero(doubtful)
        numbers: list[int] = []
        for segment, part in self._shelf.parts(doubtful):
            if part.any():
                numbers += self._orders.of(self._tx, segment).numbers[part].tolist()
        found = self._having(stream, text, numbers)
        sure[places[[number in found for number in numbers]]] = True

    def _having(self, stream: int, text: str, numbers: Sequence[int]) -> set[int]:
        """Those of some messages that have the text."""
        found = set[int]()
        column, contains = COLUMNS[stream], CONTAINS.format(name="text")
        for first in range(0, len(numbers) if is_storable(text) else 0, _AT_ONCE):
            among, params = any_of("message", numbers[first : first + _AT_ONCE])
            sql = TEXTS.format(column=column, among=among, contains=contains)
            rows = self._tx.all(sql, **params, text=pattern(text))
            found.update(row[0] for row in rows)
        return found
