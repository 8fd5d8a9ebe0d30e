"""Every place where a token meets the next, in order, some at a time.

They are far too many to be sorted at once. So they are put aside in groups that follow each
other: by the character before and roughly by what comes after, and where that is not enough, by
one following token after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from postroom.store.search.arrays import U32, U64, Bools, Int, is_first, sort_packed
from postroom.store.search.endings import Endings
from postroom.store.search.spill import Aside, Spill
from postroom.store.search.tokens import Stretch, Tokenised

MOST = 1 << 17
"""How many are sorted at once."""

_ROUGH_BITS = 8
_DIGIT_BITS = 12
_LEFT, _DOC = 0, -1


@dataclass(frozen=True, slots=True)
class Meetings:
    """Some places: the token before, those that follow as in a sequence, and the message."""

    left: U32
    following: tuple[U32, ...]
    """What stands right after, then what stands after that, and so on; zero after the end."""
    docs: U32

    def __len__(self) -> int:
        return len(self.left)


@dataclass(slots=True)
class _Group:
    """Meetings before those of the next group; if they are too many, they share some digits."""

    asides: list[Aside]
    count: int
    shared: int


def sorted_meetings(text: Tokenised, endings: Endings) -> Iterator[Meetings]:
    """All places where a token meets the next: by its last character, then by what follows."""
    digits = _Digits(text.gap, text.ahead, endings)
    with Spill() as spill:
        counts = _count(digits.first(*_two(stretch, text.gap)) for stretch in text.stretches())
        records = (_records(stretch, text.gap, text.ahead) for stretch in text.stretches())
        for group in _divide(spill, counts, records, digits, 0):
            yield from _in_order(spill, group, digits)


def _two(stretch: Stretch, gap: int) -> tuple[U32, U32]:
    """The terms before, and what follows first, in a part of all texts."""
    sequence = stretch.sequence
    meets = (sequence[:-1] != 0) & (sequence[1:] != 0)
    return (sequence[:-1][meets] & np.uint32(gap - 1)) - np.uint32(1), sequence[1:][meets]


def _records(stretch: Stretch, gap: int, ahead: int) -> U32:
    """The meetings of a part of all texts, one in each row."""
    sequence = stretch.sequence
    places = np.flatnonzero((sequence[:-1] != 0) & (sequence[1:] != 0))
    records = np.empty((len(places), ahead + 2), np.uint32)
    records[:, _LEFT] = (sequence[places] & np.uint32(gap - 1)) - np.uint32(1)
    for column in range(1, ahead + 1):
        records[:, column] = sequence[places + column]
    records[:, _DOC] = stretch.docs[places]
    return records


class _Digits:
    """The order of meetings as a few numbers of which the first that differs decides."""

    def __init__(self, gap: int, ahead: int, endings: Endings) -> None:
        self._ahead = ahead
        self.columns = ahead + 2
        self._characters = endings.characters.astype(np.uint32)
        self._shift = np.uint32(max(gap.bit_length() - _ROUGH_BITS, 0))
        self._bits = np.uint64(gap.bit_length())
        self.count = 1 + 2 * ahead

    def first(self, left: U32, following: U32) -> U32:
        """The character before, and roughly what comes after."""
        digits: U32 = self._characters[left] << np.uint32(_ROUGH_BITS)
        digits |= following >> self._shift
        return digits

    def of(self, records: U32, number: int) -> U32:
        """One of the numbers, for every meeting."""
        if not number:
            return self.first(records[:, _LEFT], records[:, 1])
        column = records[:, (number + 1) // 2]
        if number % 2:
            return column >> np.uint32(_DIGIT_BITS)
        return column & np.uint32((1 << _DIGIT_BITS) - 1)

    def order(self, columns: U32) -> Int:
        """The order of few meetings: as many columns are sorted at once as fit into a number."""
        values = self._characters[columns[_LEFT]].astype(np.uint64)
        values -= values.min()
        ahead = 1 + self._room(values, int(values.max()), 1)
        for column in columns[1:ahead]:
            values = (values << self._bits) | column
        ordered, order = sort_packed(values)
        is_tied = _are_tied(first := is_first(ordered))
        tied = np.flatnonzero(is_tied)
        while len(tied) and ahead <= self._ahead:
            values = np.cumsum(first[is_tied]).astype(np.uint64)
            own, start = order[tied], ahead
            ahead += self._room(values, int(values[-1]), ahead)
            for column in columns[start:ahead]:
                values = (values << self._bits) | column[own]
            ordered, moved = sort_packed(values)
            order[tied] = own[moved]
            is_tied = _are_tied(first := is_first(ordered))
            tied = tied[is_tied]
        return order

    def _room(self, values: U64, most: int, ahead: int) -> int:
        """How many columns, from one on, fit beside numbers up to *most* and their places."""
        room = 64 - most.bit_length() - len(values).bit_length()
        return max(1, min(room // int(self._bits), self._ahead + 1 - ahead))


def _are_tied(first: Bools) -> Bools:
    """Which elements of a sorted array have an equal one, if the first of each kind is known."""
    alone: Bools = first & np.append(first[1:], True)
    return ~alone


def _in_order(spill: Spill, group: _Group, digits: _Digits) -> Iterator[Meetings]:
    """The meetings of one group in order, in portions of at most so many."""
    if group.count <= MOST:
        (records,) = _read(spill, group, digits.columns)
        columns = np.ascontiguousarray(records.T)
        yield _meetings(columns[:, digits.order(columns)])
    elif group.shared == digits.count:  # all alike, and in their order
        for records in _read(spill, group, digits.columns):
            yield _meetings(np.ascontiguousarray(records.T))
    else:
        portions = _read(spill, group, digits.columns)
        counts = _count(digits.of(records, group.shared) for records in portions)
        portions = _read(spill, group, digits.columns)
        for part in _divide(spill, counts, portions, digits, group.shared):
            yield from _in_order(spill, part, digits)


def _meetings(columns: U32) -> Meetings:
    left, *following, docs = columns
    return Meetings(left, tuple(following), docs)


def _count(portions: Iterable[U32]) -> Int:
    """How often each digit comes."""
    counts = np.zeros(1, np.int64)
    for digits in portions:
        own = np.bincount(digits, minlength=len(counts))
        own[: len(counts)] += counts
        counts = own
    return counts


def _portions(asides: Sequence[Aside], columns: int) -> Iterator[list[Aside]]:
    """As many at a time as may be in memory."""
    portion: list[Aside] = []
    for aside in asides:
        if portion and sum(a.count for a in portion) + aside.count > columns * MOST:
            yield portion
            portion = []
        portion.append(aside)
    yield portion


def _read(spill: Spill, group: _Group, columns: int) -> Iterator[U32]:
    for asides in _portions(group.asides, columns):
        yield np.concatenate([spill.get(a) for a in asides]).reshape(-1, columns)


def _divide(
    spill: Spill, counts: Int, portions: Iterable[U32], digits: _Digits, number: int
) -> list[_Group]:
    """Put meetings aside in groups by one of their digits; a group that is too large has one."""
    edges = _edges(counts)
    groups = [_Group([], 0, number + 1) for _ in edges[1:]]
    group_of = np.repeat(np.arange(len(groups), dtype=np.uint16), np.diff(edges))
    for records in portions:
        shares = group_of[digits.of(records, number)]
        aside = spill.put(records[np.argsort(shares, kind="stable")])
        ends = np.cumsum(np.bincount(shares, minlength=len(groups))).tolist()
        for group, first, last in zip(groups, [0, *ends], ends, strict=False):
            if last > first:
                group.asides.append(aside.part(digits.columns * first, digits.columns * last))
                group.count += last - first
    return [group for group in groups if group.count]


def _edges(counts: Int) -> list[int]:
    """Where a new group begins; one has no more than may be sorted, or a single digit."""
    edges, size = [0], 0
    for digit in np.flatnonzero(counts).tolist():
        size += int(counts[digit])
        if size > MOST:
            if digit > edges[-1]:
                edges.append(digit)
            size = int(counts[digit])
    return [*edges, len(counts)]
