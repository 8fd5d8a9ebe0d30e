"""Which messages have a string that goes over a border between two tokens?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from postroom.store.search.arrays import U16
from postroom.store.search.characters import follow_up, utf8
from postroom.store.search.junction_rows import CUT, PER_GROUP, RANKED, UNEVEN
from postroom.store.search.kinds import AFTER_SPACE, NEXT, STREAM, Kind
from postroom.store.search.masks import Marks
from postroom.store.search.shelf import Shelf
from postroom.store.sql.values import any_of, each_of
from postroom.store.transaction import Transaction

HEADS = """
    SELECT segment, value FROM search_rows
     WHERE segment {among} AND kind = :kind AND key = :key AND part = 0
"""
SEGMENTS = "WITH s (number) AS ({each})"
ENDINGS = """
    SELECT 0, s.number, 0, (
        SELECT r.value FROM search_rows r
         WHERE r.segment = s.number AND r.kind = :ending AND r.key <= :backwards
         ORDER BY r.key DESC LIMIT 1
    ) FROM s
"""
JUNCTIONS = """
    SELECT 1, s.number, 0, (
        SELECT r.value FROM search_rows r
         WHERE r.segment = s.number AND r.kind = :junction AND r.key < :key
         ORDER BY r.key DESC, r.part DESC LIMIT 1
    ) FROM s
    UNION ALL
    SELECT 2, s.number, r.part, r.value FROM s CROSS JOIN search_rows r
     WHERE r.segment = s.number AND r.kind = :junction AND r.key >= :key AND r.key < :end
"""
"""What stands before a key, and all that begins with it; parts are in the order of keys."""

_BEFORE, _INSIDE = 1, 2
_Ranks = tuple[int, int, bool]
_ALL: _Ranks = (0, 1 << 16, True)
_MANY = 500
"""Where segments have more entries, it is quicker to look at one after the other."""


@dataclass
class Found:
    """Messages that surely have the string, and those that must be looked at."""

    sure: Marks
    doubtful: Marks


@dataclass
class _Rows:
    """The rows of one segment: where its endings stand, and those that can have the string.

    The first of these begins before it.
    """

    ending: bytes | None = None
    before: bytes | None = None
    values: list[bytes] = field(default_factory=list)


def find_junctions(
    tx: Transaction, shelf: Shelf, stream: int, first: str, rest: str, segments: Sequence[int]
) -> Found:
    """The messages where a token that ends like *first* is followed by all of *rest*.

    The first character of *rest* is the last one of *first*.
    """
    found = Found(Marks(shelf), Marks(shelf))
    kind = STREAM * stream
    tokens = follow_up(rest)
    is_pair = len(tokens) == len(tokens[0][1]) == 1
    if is_pair and len(first) == 1:
        segments = _use_heads(tx, found.sure, kind, _key(rest[0], tokens), segments)
    sure, doubtful = _Entries(), _Entries()
    for ahead, numbers in shelf.by_ahead(stream, segments, len(tokens)).items():
        key = _key(rest[0], tokens[:ahead])
        rows = _rows(tx, kind, first, key, numbers)
        ranks = _ranks(tx, kind, first, rows)
        for segment, own in rows.items():
            wanted = ranks.get(segment, _ALL)
            if wanted[0] < wanted[1]:
                is_exact = wanted[2] and len(tokens) == ahead
                inside = sure if is_exact else doubtful
                for entries in (sure, doubtful):
                    entries.begin(segment, wanted)
                _take(own, key, inside, doubtful, is_pair=is_pair)
    sure.mark(found.sure)
    doubtful.mark(found.doubtful)
    return found


def _key(character: str, tokens: Sequence[tuple[bool, str]]) -> bytes:
    """Where a character that is followed by some tokens stands among all."""
    key = utf8(character)
    for follows_space, token in tokens:
        key += (AFTER_SPACE if follows_space else NEXT) + utf8(token)
    return key


def _use_heads(
    tx: Transaction, sure: Marks, kind: int, key: bytes, segments: Sequence[int]
) -> list[int]:
    """Mark what is ready, and return the segments where nothing is."""
    among, params = any_of("segment", segments)
    ready = tx.all(HEADS.format(among=among), **params, kind=kind + Kind.HEAD, key=key)
    for segment, value in ready:
        sure.add(segment, value)
    return sorted(set(segments) - {row[0] for row in ready})


def _rows(
    tx: Transaction, kind: int, first: str, key: bytes, segments: Sequence[int]
) -> dict[int, _Rows]:
    each, params = each_of("segment", segments)
    params |= {"junction": kind + Kind.JUNCTION, "key": key, "end": key + b"\xff"}
    sql = JUNCTIONS
    if len(first) > 1:
        sql = f"{ENDINGS} UNION ALL {JUNCTIONS}"
        params |= {"ending": kind + Kind.ENDING, "backwards": utf8(first)[::-1]}
    rows = {segment: _Rows() for segment in segments}
    for what, segment, _, value in sorted(tx.all(SEGMENTS.format(each=each) + sql, **params)):
        own = rows[segment]
        if what == _INSIDE:
            own.values.append(value)
        elif what == _BEFORE:
            own.before = value
        else:
            own.ending = value
    return rows


def _ranks(tx: Transaction, kind: int, first: str, rows: Mapping[int, _Rows]) -> dict[int, _Ranks]:
    """By segment, the ranks of tokens that end like this; and whether they are exact.

    A token of one character has no rank to look for.
    """
    if len(first) == 1:
        return {}
    backwards = utf8(first)[::-1]
    ranks, wide = dict[int, _Ranks](), []
    for segment, own in rows.items():
        if own.ending and _ends_in(own.ending, backwards):
            ranks[segment] = _inside(own.ending, backwards)
        else:
            wide.append(segment)
    last = backwards[: len(utf8(first[-1]))]
    for segment, high in _endings_at(tx, kind, backwards + b"\xff", wide).items():
        ranks[segment] = _between(_endings(rows[segment].ending), high, backwards, last)
    return ranks


def _endings_at(
    tx: Transaction, kind: int, backwards: bytes, segments: Sequence[int]
) -> dict[int, list[bytes]]:
    """By segment, the row where an ending stands."""
    if not segments:
        return {}
    each, params = each_of("segment", segments)
    sql = SEGMENTS.format(each=each) + ENDINGS
    rows = tx.all(sql, **params, ending=kind + Kind.ENDING, backwards=backwards)
    return {segment: _endings(value) for _, segment, _, value in rows}


def _endings(value: bytes | None) -> list[bytes]:
    """The head of a row, and the endings in it."""
    return [value[:5], *value[5:].split(b"\n")] if value else []


def _ends_in(row: bytes, backwards: bytes) -> bool:
    """Whether all that begins like this is in this row already."""
    return row[(row.rfind(b"\n", 5) + 1) or 5 :] > backwards + b"\xff"


def _inside(row: bytes, backwards: bytes) -> _Ranks:
    """The ranks of what begins like this, all of it in one row: its endings stand side by side."""
    begins = b"\n" + backwards
    first = 5 if row.startswith(backwards, 5) else row.find(begins, 5) + 1
    if not first:
        return 0, 0, True
    last = max(first, row.rfind(begins, first) + 1)
    start = int.from_bytes(row[:4], "big") + row.count(b"\n", 5, first)
    stop, shift = start + row.count(b"\n", first, last), row[4]
    return start >> shift, (stop >> shift) + 1, shift == 0


def _between(low: list[bytes], high: list[bytes], backwards: bytes, last: bytes) -> _Ranks:
    start, shift = _rank(low, backwards, last)
    stop, shift = _rank(high, backwards + b"\xff", last)
    if stop <= start:
        return 0, 0, True
    return start >> shift, ((stop - 1) >> shift) + 1, shift == 0


def _rank(row: list[bytes], backwards: bytes, last: bytes) -> tuple[int, int]:
    """How many tokens with the same last character are before this one, and the shift."""
    if not row or not row[1].startswith(last):
        return 0, 0
    return int.from_bytes(row[0][:4], "big") + bisect_left(row, backwards, 1) - 1, row[0][4]


def _take(rows: _Rows, key: bytes, inside: _Entries, doubtful: _Entries, *, is_pair: bool) -> None:
    """Take what the rows of one segment have of a key, and what they may have of it."""
    values = [rows.before, *rows.values] if rows.before else rows.values
    end, final = key + b"\xff", len(values) - 1
    for number, value in enumerate(values):
        row = _Row(value)
        if rows.before and 0 < number < final:
            inside.take(row, 0, len(row.docs))
            continue
        names = row.names()
        first = bisect_left(names, key)
        last = bisect_left(names, end, first)
        if is_pair and row.is_cut:
            inside.take(row, row.start(first), row.start(last))
            continue
        goes_on = last == len(names) and number < final
        low, high = row.start(first), row.start(max(first, last if goes_on else last - 1))
        if first:
            doubtful.take(row, row.start(first - 1), low)
        inside.take(row, low, high)
        doubtful.take(row, high, row.start(last))


class _Row:
    """Places where tokens meet, in groups; each group has a name not above what is in it."""

    __slots__ = ("_end", "_sizes", "_value", "docs", "is_cut", "ranks")

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._end = end = 4 + int.from_bytes(value[1:4], "big")
        self.is_cut = bool(value[0] & CUT)
        self._sizes = b""
        if value[0] & UNEVEN:
            count = value.count(b"\n", 4, end) + 1
            self._sizes = value[end : end + count]
            end += count
        half = (len(value) - end) // 2 if value[0] & RANKED else len(value) - end
        self.docs, self.ranks = value[end : end + half], value[end + half :]

    def names(self) -> list[bytes]:
        return self._value[4 : self._end].split(b"\n")

    def start(self, group: int) -> int:
        """Where the entries of a group begin."""
        if self._sizes:
            return 2 * sum(self._sizes[:group])
        return min(2 * PER_GROUP * group, len(self.docs))


class _Entries:
    """Places where tokens meet, of several segments: the messages, and the ranks before."""

    __slots__ = ("_docs", "_ranks", "_segments", "_sizes", "_wanted")

    def __init__(self) -> None:
        self._docs: list[bytes] = []
        self._ranks: list[bytes] = []
        self._sizes: list[int] = []
        self._segments: list[int] = []
        self._wanted: list[_Ranks] = []

    def begin(self, segment: int, wanted: _Ranks) -> None:
        """What is taken from now on is of this segment, and only these ranks of it are wanted."""
        self._segments.append(segment)
        self._wanted.append(wanted)
        self._sizes.append(0)

    def take(self, row: _Row, low: int, high: int) -> None:
        """Take what is between two places of a row."""
        if high > low:
            self._docs.append(row.docs[low:high])
            self._ranks.append(row.ranks[low:high] or bytes(high - low))
            self._sizes[-1] += (high - low) // 2

    def mark(self, marks: Marks) -> None:
        """Mark the messages of all entries whose ranks are wanted."""
        if not self._docs:
            return
        docs = np.frombuffer(b"".join(self._docs), "<u2")
        ranks = np.frombuffer(b"".join(self._ranks), "<u2")
        if self._wanted[0] is _ALL or len(docs) > _MANY * len(self._sizes):
            self._mark_each(marks, docs, ranks)
        else:
            self._mark_together(marks, docs, ranks)

    def _mark_each(self, marks: Marks, docs: U16, ranks: U16) -> None:
        """One segment after the other."""
        last = 0
        for segment, wanted, size in zip(self._segments, self._wanted, self._sizes, strict=True):
            first, last = last, last + size
            own = docs[first:last]
            if wanted is not _ALL:
                own = own[ranks[first:last] - np.uint16(wanted[0]) < wanted[1] - wanted[0]]
            marks.add_places(segment, own.tobytes())

    def _mark_together(self, marks: Marks, docs: U16, ranks: U16) -> None:
        """The same for few: all segments at once."""
        lows = np.array([low for low, _, _ in self._wanted], np.uint16)
        spans = np.array([high - low for low, high, _ in self._wanted], np.uint16)
        at = np.arange(len(self._sizes)).repeat(self._sizes)
        chosen = (ranks - lows[at] < spans[at]).nonzero()[0]
        marks.add_all(self._segments, at[chosen], docs[chosen])
