"""Which messages have a string that goes over a border between two tokens?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from postroom.store.search.characters import follow_up, utf8
from postroom.store.search.junction_rows import CUT, PER_GROUP, RANKED, UNEVEN
from postroom.store.search.kinds import AFTER_SPACE, NEXT, STREAM, Kind
from postroom.store.search.masks import Marks
from postroom.store.search.shelf import Shelf
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

JUNCTIONS = """
    SELECT segment, value FROM search_rows
     WHERE segment {among} AND kind = :kind AND key >= :key AND key < :end
     ORDER BY segment, key, part
"""
HEADS = """
    SELECT segment, value FROM search_rows
     WHERE segment {among} AND kind = :kind AND key = :key AND part = 0
"""
BEFORE = """
    SELECT s.number, (
        SELECT r.value FROM search_rows r
         WHERE r.segment = s.number AND r.kind = :kind AND r.key < :key
         ORDER BY r.key DESC, r.part DESC LIMIT 1
    ) FROM search_segments s WHERE s.number {among}
"""
ENDINGS = """
    SELECT s.number, (
        SELECT r.value FROM search_rows r
         WHERE r.segment = s.number AND r.kind = :kind AND r.key <= :key
         ORDER BY r.key DESC LIMIT 1
    ) FROM search_segments s WHERE s.number {among}
"""
_Ranks = tuple[int, int, bool]
_ALL: _Ranks = (0, 1 << 16, True)


@dataclass
class Found:
    """Messages that surely have the string, and those that must be looked at."""

    sure: Marks
    doubtful: Marks


@dataclass
class _Rows:
    """The rows of one segment that can have the string; the first begins before it."""

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
    if len(first) == len(tokens) == len(tokens[0][1]) == 1:
        segments = _use_heads(tx, found.sure, kind, _key(rest[0], tokens), segments)
    ranks = _ranks(tx, kind, first, segments)
    for ahead, numbers in shelf.by_ahead(stream, segments, len(tokens)).items():
        key = _key(rest[0], tokens[:ahead])
        for segment, rows in _rows(tx, kind, key, numbers).items():
            own = ranks.get(segment, _ALL)
            sure = found.sure if own[2] and len(tokens) == ahead else found.doubtful
            entries = _entries(rows, key, is_pair=len(tokens) == len(tokens[0][1]) == 1)
            sure.add_places(segment, entries.sure.docs(own))
            found.doubtful.add_places(segment, entries.doubtful.docs(own))
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


def _rows(tx: Transaction, kind: int, key: bytes, segments: Sequence[int]) -> dict[int, _Rows]:
    among, params = any_of("segment", segments)
    junction = kind + Kind.JUNCTION
    before = tx.all(BEFORE.format(among=among), **params, kind=junction, key=key)
    rows = {segment: _Rows(value) for segment, value in before}
    inside = JUNCTIONS.format(among=among)
    for segment, value in tx.all(inside, **params, kind=junction, key=key, end=key + b"\xff"):
        rows[segment].values.append(value)
    return rows


def _ranks(tx: Transaction, kind: int, first: str, segments: Sequence[int]) -> dict[int, _Ranks]:
    """By segment, the ranks of tokens that end like this; and whether they are exact.

    A token of one character has no rank to look for.
    """
    if len(first) == 1:
        return {}
    backwards = utf8(first)[::-1]
    lows = _endings(tx, kind, backwards, segments)
    wide = [segment for segment, row in lows.items() if not _ends_in(row, backwards)]
    highs = lows | _endings(tx, kind, backwards + b"\xff", wide)
    last = backwards[: len(utf8(first[-1]))]
    return {
        segment: _between(low, highs[segment], backwards, last) for segment, low in lows.items()
    }


def _endings(
    tx: Transaction, kind: int, backwards: bytes, segments: Sequence[int]
) -> dict[int, list[bytes]]:
    """By segment, the row where an ending stands: its head, and the endings in it."""
    if not segments:
        return {}
    among, params = any_of("segment", segments)
    rows = tx.all(ENDINGS.format(among=among), **params, kind=kind + Kind.ENDING, key=backwards)
    return {
        segment: [value[:5], *value[5:].split(b"\n")] if value else [] for segment, value in rows
    }


def _ends_in(row: list[bytes], backwards: bytes) -> bool:
    """Whether all that begins like this is in this row already."""
    return len(row) > 1 and row[-1] > backwards + b"\xff"


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


def _entries(rows: _Rows, key: bytes, *, is_pair: bool) -> _Split:
    """What the rows of one segment have of a key."""
    sure, doubtful = _Entries(), _Entries()
    values = [rows.before, *rows.values] if rows.before else rows.values
    for number, value in enumerate(values):
        row = _Row(value)
        if rows.before and 0 < number < len(values) - 1:
            sure.take(row, 0, row.count)
            continue
        first, last = bisect_left(row.names, key), bisect_left(row.names, key + b"\xff")
        if is_pair and row.is_cut:
            sure.take(row, first, last)
            continue
        goes_on = last == row.count and number + 1 < len(values)
        stop = max(first, last if goes_on else last - 1)
        doubtful.take(row, max(first - 1, 0), first)
        sure.take(row, first, stop)
        doubtful.take(row, stop, last)
    return _Split(sure, doubtful)


class _Row:
    """Places where tokens meet, in groups; each group has a name not above what is in it."""

    def __init__(self, value: bytes) -> None:
        end = 4 + int.from_bytes(value[1:4], "big")
        self.names = value[4:end].split(b"\n")
        self.count = len(self.names)
        self.is_cut = bool(value[0] & CUT)
        self._sizes = b""
        if value[0] & UNEVEN:
            self._sizes = value[end : end + self.count]
            end += self.count
        entries = value[end:]
        half = len(entries) // 2 if value[0] & RANKED else len(entries)
        self.docs, self.ranks = entries[:half], entries[half:]

    def start(self, group: int) -> int:
        """Where the entries of a group begin."""
        if self._sizes:
            return 2 * sum(self._sizes[:group])
        return min(2 * PER_GROUP * group, len(self.docs))


class _Entries:
    """Places where tokens meet: the messages, and the ranks of the tokens before."""

    def __init__(self) -> None:
        self._docs: list[bytes] = []
        self._ranks: list[bytes] = []

    def take(self, row: _Row, first: int, last: int) -> None:
        """Take the groups between two of a row."""
        low, high = row.start(first), row.start(last)
        if high > low:
            self._docs.append(row.docs[low:high])
            self._ranks.append(row.ranks[low:high] or bytes(high - low))

    def docs(self, ranks: _Ranks) -> bytes:
        """The messages of all entries with these ranks."""
        if not self._docs or ranks[0] == ranks[1]:
            return b""
        docs = b"".join(self._docs)
        if ranks == _ALL:
            return docs
        own = np.frombuffer(b"".join(self._ranks), "<u2")
        return np.frombuffer(docs, "<u2")[(own >= ranks[0]) & (own < ranks[1])].tobytes()


@dataclass
class _Split:
    """Entries that surely have a key, and those that may."""

    sure: _Entries
    doubtful: _Entries
