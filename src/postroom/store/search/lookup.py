"""Searching with the index: which messages of all segments match, as a mask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from postroom.store.search.characters import later_parts, longest_token, split_query
from postroom.store.search.formats import WHOLE
from postroom.store.search.junctions import find_junctions
from postroom.store.search.kinds import COLUMNS
from postroom.store.search.masks import Marks, Mask, keep_between
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
from postroom.store.sql.conditions import within
from postroom.store.sql.values import CONTAINS, any_of, is_storable, pattern
from postroom.store.transaction import Transaction, remembered

SETS = "SELECT name, segment, value FROM search_sets WHERE name {among}"
TEXTS = """
    SELECT message FROM search_texts
     WHERE {within} AND message {among} AND {column} {contains}
"""
_AT_ONCE = 200
_DENSE = 1.5
"""Where not many more messages stand between some, these are read as well."""

_FEW = 100
"""So few texts are read sooner than another part of a query is looked for."""


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

    def mask(self) -> Mask:
        """The messages in segments that are wanted."""
        scope = (Lookup, self._wanted.inboxes, *self._all_of, "but", *self._none_of)
        mask = remembered(self._tx, scope, self._scope).copy()
        self._limit_dates(mask)
        for stream, text in self._wanted.texts():
            segments = self._shelf.holders(mask)
            mask &= self._with_text(stream, text, mask, segments)
        return mask

    @cached_property
    def _sets(self) -> dict[str, list[tuple[int, bytes]]]:
        """All that the question needs, by name: read at once, or not at all if remembered."""
        cut = [cut_set(stream) for stream, _ in self._wanted.texts()]
        names = [*self._inboxes, *self._all_of, *self._none_of, *cut]
        sets: dict[str, list[tuple[int, bytes]]] = {}
        for first in range(0, len(names), _AT_ONCE):
            among, params = any_of("name", names[first : first + _AT_ONCE])
            for name, segment, value in self._tx.all(SETS.format(among=among), **params):
                sets.setdefault(name, []).append((segment, value))
        return sets

    def _scope(self) -> Mask:
        """All but texts and dates."""
        everything = self._wanted.inboxes is None
        mask = self._shelf.all() if everything else self._union(self._inboxes)
        for name in self._all_of:
            mask &= self._union([name])
        for name in self._none_of:
            if name in self._sets:
                mask &= ~self._union([name])
        return mask

    def _union(self, names: Sequence[str]) -> Mask:
        union = Marks(self._shelf)
        for name in names:
            for segment, value in self._sets.get(name, ()):
                union.add(segment, value)
        return union.mask()

    def _limit_dates(self, mask: Mask) -> None:
        """Clear what is outside the dates; only segments that reach over one are looked at."""
        since, before = self._wanted.since, self._wanted.before
        for segment in self._shelf.segments:
            first, last = 0, segment.size
            if since is not None and segment.oldest < since:
                first = int(self._orders.of(self._tx, segment).dates.searchsorted(since))
            if before is not None and segment.newest >= before:
                last = int(self._orders.of(self._tx, segment).dates.searchsorted(before))
            if (first, last) != (0, segment.size):
                keep_between(self._shelf.part(mask, segment.number), first, last)

    def _with_text(self, stream: int, text: str, scope: Mask, segments: Sequence[int]) -> Mask:
        """Those in the scope, and perhaps others, that have a text."""
        if not segments:
            return self._shelf.none()
        first, rest = split_query(text)
        doubtful = self._cut(stream, text)
        if rest:
            found = find_junctions(self._tx, self._shelf, stream, first, rest, segments)
            sure = found.sure.mask() & ~doubtful
            others = found.doubtful.mask() & scope & ~sure & ~doubtful
            doubtful |= self._narrowed(stream, rest, others)
        else:
            sure = find_words(self._tx, self._shelf, stream, first, segments) & ~doubtful
        doubtful &= scope & ~sure
        if doubtful.any():
            sure |= self._settle(stream, text, doubtful)
        return sure

    def _cut(self, stream: int, text: str) -> Mask:
        """The messages with a token that is not all in the index, if that matters for a text."""
        is_long = longest_token(text) > WHOLE

        def union() -> Mask:
            cut = Marks(self._shelf)
            for segment, value in self._sets.get(cut_set(stream), ()):
                if segment in self._shelf and (
                    is_long or not self._shelf.format_of(segment).has_pieces
                ):
                    cut.add(segment, value)
            return cut.mask()

        return remembered(self._tx, (Lookup, cut_set(stream), is_long), union).copy()

    def _narrowed(self, stream: int, rest: str, doubtful: Mask) -> Mask:
        """Those of the doubtful that have the later parts of a long text as well."""
        segments = self._shelf.holders(doubtful) if doubtful.any() else []
        groups = self._shelf.by_ahead(stream, segments, len(rest))
        for first, part in later_parts(rest, min(groups)) if groups else ():
            if np.bitwise_count(doubtful).sum() <= _FEW:
                break
            found = find_junctions(self._tx, self._shelf, stream, first, part, segments)
            doubtful &= found.sure.mask() | found.doubtful.mask()
        return doubtful

    def _settle(self, stream: int, text: str, doubtful: Mask) -> Mask:
        """Read the texts of the doubtful: those that have what is wanted."""
        parts = [
            (segment.number, places, self._orders.of(self._tx, segment).numbers[places])
            for segment, places in self._shelf.places(doubtful)
        ]
        numbers = np.sort(np.concatenate([own for _, _, own in parts])).tolist()
        having = np.array(self._having(stream, text, numbers), np.int64)
        settled = Marks(self._shelf)
        for segment, places, own in parts:
            settled.add_places(segment, places[np.isin(own, having)].astype("<u2").tobytes())
        return settled.mask()

    def _having(self, stream: int, text: str, numbers: Sequence[int]) -> list[int]:
        """Those of some messages that have the text, and perhaps some that stand among them."""
        found = list[int]()
        column, contains = COLUMNS[stream], CONTAINS.format(name="text")
        where, scope = within("inbox", self._wanted.inboxes)
        for first in range(0, len(numbers) if is_storable(text) else 0, _AT_ONCE):
            among, params = _among(numbers[first : first + _AT_ONCE])
            sql = TEXTS.format(within=where, column=column, among=among, contains=contains)
            rows = self._tx.all(sql, **params, **scope, text=pattern(text))
            found += (row[0] for row in rows)
        return found


def _among(numbers: Sequence[int]) -> tuple[str, dict[str, object]]:
    """Some messages, in order; all from the first to the last if that is sooner read."""
    first, last = numbers[0], numbers[-1]
    if last - first < _DENSE * len(numbers):
        return "BETWEEN :first AND :last", {"first": first, "last": last}
    return any_of("message", numbers)
