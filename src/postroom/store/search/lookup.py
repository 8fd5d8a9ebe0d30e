"""Searching with the index: which messages of all segments match, as a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from postroom.store.search.characters import has_longer_token, later_parts, split_query
from postroom.store.search.formats import WHOLE
from postroom.store.search.junctions import find_junctions
from postroom.store.search.kinds import COLUMNS
from postroom.store.search.masks import Marks, Mask, keep_between, places_of, set_places
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
from postroom.store.sql.values import CONTAINS, any_of, in_lots, is_storable, pattern
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


@dataclass(slots=True)
class _Names:
    """The sets that a message must be in: one of the inboxes, all of some, and none of others."""

    inboxes: list[str]
    all_of: list[str] = field(default_factory=list)
    none_of: list[str] = field(default_factory=lambda: [REMOVED])


class Lookup:
    """One question to the index."""

    def __init__(self, tx: Transaction, wanted: Wanted, shelf: Shelf, orders: Orders) -> None:
        self._tx = tx
        self._wanted = wanted
        self._shelf = shelf
        self._orders = orders

    def mask(self) -> Mask:
        """The messages in segments that are wanted."""
        wanted = self._wanted
        scope = (Lookup, wanted.inboxes, wanted.labels, wanted.mailbox, wanted.has_attachment)
        mask, segments = remembered(self._tx, scope, self._scope)
        if wanted.since is not None or wanted.before is not None:
            mask = self._limited(mask)
            segments = self._shelf.holders(mask)
        for number, (stream, text) in enumerate(wanted.texts()):
            if number:
                segments = self._shelf.holders(mask)
            mask = mask & self._with_text(stream, text, mask, segments)
        return mask

    def _scope(self) -> tuple[Mask, list[int]]:
        """All but texts and dates, and the segments of which that has anything."""
        everything = self._wanted.inboxes is None
        mask = self._shelf.all() if everything else self._union(self._names.inboxes)
        for name in self._names.all_of:
            mask &= self._union([name])
        for name in self._names.none_of:
            if name in self._sets:
                mask &= ~self._union([name])
        return mask, self._shelf.holders(mask)

    @cached_property
    def _names(self) -> _Names:
        wanted = self._wanted
        names = _Names([inbox_set(inbox) for inbox in wanted.inboxes or ()])
        names.all_of += [label_set(label) for label in wanted.labels]
        if wanted.mailbox is None:
            names.none_of.append(HIDDEN)
        elif wanted.mailbox != EVERYWHERE:
            names.all_of.append(mailbox_set(wanted.mailbox))
        if wanted.has_attachment is not None:
            (names.all_of if wanted.has_attachment else names.none_of).append(WITH_FILE)
        return names

    @cached_property
    def _sets(self) -> dict[str, list[tuple[int, bytes]]]:
        """All that the question needs, by name: read at once, or not at all if remembered."""
        cut = [cut_set(stream) for stream, _ in self._wanted.texts()]
        names = [*self._names.inboxes, *self._names.all_of, *self._names.none_of, *cut]
        sets: dict[str, list[tuple[int, bytes]]] = {}
        for first in range(0, len(names), _AT_ONCE):
            among, params = any_of("name", names[first : first + _AT_ONCE])
            for name, segment, value in self._tx.all(SETS.format(among=among), **params):
                sets.setdefault(name, []).append((segment, value))
        return sets

    def _union(self, names: Sequence[str]) -> Mask:
        union = Marks(self._shelf)
        for name in names:
            for segment, value in self._sets.get(name, ()):
                union.add(segment, value)
        return union.mask()

    def _limited(self, scope: Mask) -> Mask:
        """Without what is outside the dates; only segments that reach over one are looked at."""
        since, before = self._wanted.since, self._wanted.before
        mask = scope.copy()
        for segment in self._shelf.segments:
            first, last = 0, segment.size
            if since is not None and segment.oldest < since:
                first = int(self._orders.of(self._tx, segment).dates.searchsorted(since))
            if before is not None and segment.newest >= before:
                last = int(self._orders.of(self._tx, segment).dates.searchsorted(before))
            if (first, last) != (0, segment.size):
                keep_between(self._shelf.part(mask, segment.number), first, last)
        return mask

    def _with_text(self, stream: int, text: str, scope: Mask, segments: Sequence[int]) -> Mask:
        """Those in the scope, and perhaps others, that have a text."""
        if not segments:
            return self._shelf.none()
        first, rest = split_query(text)
        cut = self._cut(stream, text)
        doubtful = None if cut is None else cut & scope
        if rest:
            found = find_junctions(self._tx, self._shelf, stream, first, rest, segments)
            sure = found.sure.mask()
            if found.doubtful:
                others = found.doubtful.mask() & scope & ~sure
                others = self._narrowed(stream, rest, others)
                doubtful = others if doubtful is None else doubtful | others
        else:
            sure = find_words(self._tx, self._shelf, stream, first, segments)
        if cut is not None:
            sure &= ~cut
        if doubtful is not None and doubtful.any():
            sure |= self._settle(stream, text, doubtful)
        return sure

    def _cut(self, stream: int, text: str) -> Mask | None:
        """The messages with a token that is not all in the index, if that matters for a text."""
        is_long = has_longer_token(text, WHOLE)

        def union() -> Mask | None:
            cut = Marks(self._shelf)
            for segment, value in self._sets.get(cut_set(stream), ()):
                if segment in self._shelf and (
                    is_long or not self._shelf.format_of(segment).has_pieces
                ):
                    cut.add(segment, value)
            return cut.mask() if cut else None

        return remembered(self._tx, (Lookup, cut_set(stream), is_long), union)

    def _narrowed(self, stream: int, rest: str, doubtful: Mask) -> Mask:
        """Those of the doubtful that have the later parts of a long text as well."""
        for first, part in later_parts(rest, self._shelf.ahead_of_all(stream)):
            if np.bitwise_count(doubtful).sum() <= _FEW:
                break
            segments = self._shelf.holders(doubtful)
            found = find_junctions(self._tx, self._shelf, stream, first, part, segments)
            doubtful &= found.sure.mask() | found.doubtful.mask()
        return doubtful

    def _settle(self, stream: int, text: str, doubtful: Mask) -> Mask:
        """Read the texts of the doubtful: those that have what is wanted."""
        places = places_of(doubtful)
        numbers = self._orders.joined(self._tx, self._shelf).numbers[places].tolist()
        having = set(self._having(stream, text, sorted(numbers)))
        settled = self._shelf.none()
        set_places(settled, places[[number in having for number in numbers]])
        return settled

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
    return any_of("message", in_lots(numbers))
