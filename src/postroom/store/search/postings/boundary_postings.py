"""Reading boundary postings: which messages contain a string that crosses a token boundary?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from postroom.store.search.postings.boundary_writer import (
    BIGRAM_ALIGNED,
    HAS_RANKS,
    HAS_SIZES,
    PER_GROUP,
)
from postroom.store.search.postings.term_postings import AT_KEY, SEGMENTS, add_cached
from postroom.store.search.segments.segment import ADJACENT, AFTER_SPACE, STREAM, Kind
from postroom.store.search.segments.snapshot import MaskBuilder, Snapshot
from postroom.store.search.tokens.boundaries import following_tokens, utf8
from postroom.store.sql.statements import each_of
from postroom.store.transaction import Transaction

Ranks = tuple[int, int, bool]
"""From one rank to before another, and whether the range is exact."""

ALL_RANKS: Ranks = (0, 1 << 16, True)
_ONE_BY_ONE = 500
"""With more entries per segment than this, reading one segment after the other is faster."""


@dataclass
class SegmentRows:
    """The rows of one segment: the row of the ending, and the rows that can hold the key.

    `before` is the last row that starts below the key.
    """

    ending: bytes | None = None
    before: bytes | None = None
    values: list[bytes] = field(default_factory=list)


def collect(
    rows: SegmentRows, key: bytes, inside: Entries, candidates: Entries, *, is_bigram: bool
) -> None:
    """Collect the entries of a key: those inside, and those that may be."""
    values = [rows.before, *rows.values] if rows.before else rows.values
    end, final = key + b"\xff", len(values) - 1
    for number, value in enumerate(values):
        row = _Row(value)
        if rows.before and 0 < number < final:
            inside.collect(row, 0, len(row.docs))
            continue
        names = row.names()
        first = bisect_left(names, key)
        last = bisect_left(names, end, first)
        if is_bigram and row.is_aligned:
            inside.collect(row, row.start(first), row.start(last))
            continue
        continues = last == len(names) and number < final
        low, high = row.start(first), row.start(max(first, last if continues else last - 1))
        if first:
            candidates.collect(row, row.start(first - 1), low)
        inside.collect(row, low, high)
        candidates.collect(row, high, row.start(last))


class _Row:
    """Boundaries in groups; each group has a key that is not above its entries."""

    __slots__ = ("_end", "_sizes", "_value", "docs", "is_aligned", "ranks")

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._end = end = 4 + int.from_bytes(value[1:4], "big")
        self.is_aligned = bool(value[0] & BIGRAM_ALIGNED)
        self._sizes = b""
        if value[0] & HAS_SIZES:
            count = value.count(b"\n", 4, end) + 1
            self._sizes = value[end : end + count]
            end += count
        half = (len(value) - end) // 2 if value[0] & HAS_RANKS else len(value) - end
        self.docs, self.ranks = value[end : end + half], value[end + half :]

    def names(self) -> list[bytes]:
        return self._value[4 : self._end].split(b"\n")

    def start(self, group: int) -> int:
        """The offset of the first entry of a group."""
        if self._sizes:
            return 2 * sum(self._sizes[:group])
        return min(2 * PER_GROUP * group, len(self.docs))


class _SegmentEntries(NamedTuple):
    """The entries of one segment: messages, ranks, and the ranks that match."""

    segment: int
    rank_range: Ranks
    docs: list[bytes]
    ranks: list[bytes]

    def doc_ids(self) -> bytes:
        """The messages whose ranks match."""
        docs = b"".join(self.docs)
        if self.rank_range is ALL_RANKS:
            return docs
        above = np.frombuffer(b"".join(self.ranks), "<u2") - np.uint16(self.rank_range[0])
        return np.frombuffer(docs, "<u2")[above <= _width(self.rank_range)].tobytes()


def _width(ranks: Ranks) -> int:
    return ranks[1] - 1 - ranks[0]


class Entries:
    """Boundaries of several segments."""

    __slots__ = ("_segments", "_size")

    def __init__(self) -> None:
        self._segments: list[_SegmentEntries] = []
        self._size = 0

    def begin(self, segment: int, ranks: Ranks) -> None:
        """Start a segment; only entries with these ranks match."""
        self._segments.append(_SegmentEntries(segment, ranks, [], []))

    def collect(self, row: _Row, low: int, high: int) -> None:
        """Add the entries between two offsets of a row."""
        if high > low:
            own = self._segments[-1]
            own.docs.append(row.docs[low:high])
            self._size += high - low
            if own.rank_range is not ALL_RANKS:
                own.ranks.append(row.ranks[low:high] or bytes(high - low))

    def mark(self, mask: MaskBuilder) -> None:
        """Add the messages of all entries whose ranks match."""
        entries = [own for own in self._segments if own.docs]
        if not entries:
            return
        # ALL_RANKS holds for every segment or for none: a single character has no rank.
        if entries[0].rank_range is ALL_RANKS or self._size > 2 * _ONE_BY_ONE * len(entries):
            for own in entries:
                mask.add_doc_ids(own.segment, own.doc_ids())
        else:
            _mark_together(mask, entries)


def _mark_together(mask: MaskBuilder, entries: Sequence[_SegmentEntries]) -> None:
    """`Entries.mark` for few entries: all segments at once."""
    segments, rank_ranges, docs, ranks = zip(*entries, strict=True)
    lows = np.array([low for low, _, _ in rank_ranges], np.uint16)
    widths = np.array([_width(one) for one in rank_ranges], np.uint16)
    at = np.arange(len(entries)).repeat([sum(map(len, own)) // 2 for own in docs])
    above = np.frombuffer(b"".join(chain.from_iterable(ranks)), "<u2") - lows[at]
    chosen = (above <= widths[at]).nonzero()[0]
    doc_ids = np.frombuffer(b"".join(chain.from_iterable(docs)), "<u2")[chosen]
    mask.add_to_segments(segments, at[chosen], doc_ids)


ENDINGS = """
    SELECT 0, s.number, 0, (
        SELECT r.value FROM search_rows r
         WHERE r.segment = s.number AND r.kind = :ending AND r.key <= :backwards
         ORDER BY r.key DESC LIMIT 1
    ) FROM s
"""
_BEFORE, _INSIDE = 1, 2


def find_boundary_postings(
    tx: Transaction, snapshot: Snapshot, stream: int, first: str, rest: str, segments: Sequence[int]
) -> tuple[MaskBuilder, MaskBuilder]:
    """The messages where a token that ends with *first* is followed by all of *rest*.

    The first character of *rest* is the last one of *first*. The second result are candidates,
    whose text must be read.
    """
    found, unverified = MaskBuilder(snapshot), MaskBuilder(snapshot)
    kind = STREAM * stream
    tokens = following_tokens(rest)
    is_bigram = len(tokens) == len(tokens[0][1]) == 1
    if is_bigram and len(first) == 1:
        key = _key(rest[0], tokens)
        segments = add_cached(tx, found, kind + Kind.HOT_BIGRAM, key, segments)
    matches, candidates = Entries(), Entries()
    for lookahead, numbers in snapshot.by_lookahead(stream, segments, len(tokens)).items():
        key = _key(rest[0], tokens[:lookahead])
        rows = _rows(tx, kind, first, key, numbers)
        ranks = _ranks(tx, kind, first, rows)
        for segment, own in rows.items():
            rank_range = ranks.get(segment, ALL_RANKS)
            if rank_range[0] < rank_range[1]:
                is_exact = rank_range[2] and len(tokens) == lookahead
                inside = matches if is_exact else candidates
                for entries in (matches, candidates):
                    entries.begin(segment, rank_range)
                collect(own, key, inside, candidates, is_bigram=is_bigram)
    matches.mark(found)
    candidates.mark(unverified)
    return found, unverified


def _key(character: str, tokens: Sequence[tuple[bool, str]]) -> bytes:
    """The key of a character that is followed by some tokens."""
    key = utf8(character)
    for follows_space, token in tokens:
        key += (AFTER_SPACE if follows_space else ADJACENT) + utf8(token)
    return key


def _rows(
    tx: Transaction, kind: int, first: str, key: bytes, segments: Sequence[int]
) -> dict[int, SegmentRows]:
    each, params = each_of("segment", segments)
    params |= {"kind": kind + Kind.BOUNDARY, "key": key, "end": key + b"\xff"}
    sql = AT_KEY
    if len(first) > 1:
        sql = f"{ENDINGS} UNION ALL {AT_KEY}"
        params |= {"ending": kind + Kind.ENDING, "backwards": utf8(first)[::-1]}
    rows = {segment: SegmentRows() for segment in segments}
    for source, segment, _, value in sorted(tx.all(SEGMENTS.format(each=each) + sql, **params)):
        own = rows[segment]
        if source == _INSIDE:
            own.values.append(value)
        elif source == _BEFORE:
            own.before = value
        else:
            own.ending = value
    return rows


def _ranks(
    tx: Transaction, kind: int, first: str, rows: Mapping[int, SegmentRows]
) -> dict[int, Ranks]:
    """By segment, the ranks of tokens that end with *first*. A single character has no rank."""
    if len(first) == 1:
        return {}
    backwards = utf8(first)[::-1]
    ranks, unbounded = dict[int, Ranks](), []
    for segment, own in rows.items():
        if own.ending and _is_last_row(own.ending, backwards):
            ranks[segment] = _ranks_in_row(own.ending, backwards)
        else:
            unbounded.append(segment)
    last = backwards[: len(utf8(first[-1]))]
    for segment, high in _endings_at(tx, kind, backwards + b"\xff", unbounded).items():
        ranks[segment] = _ranks_between(_endings(rows[segment].ending), high, backwards, last)
    return ranks


def _endings_at(
    tx: Transaction, kind: int, backwards: bytes, segments: Sequence[int]
) -> dict[int, list[bytes]]:
    """By segment, the row with an ending."""
    if not segments:
        return {}
    each, params = each_of("segment", segments)
    sql = SEGMENTS.format(each=each) + ENDINGS
    rows = tx.all(sql, **params, ending=kind + Kind.ENDING, backwards=backwards)
    return {segment: _endings(value) for _, segment, _, value in rows}


def _endings(value: bytes | None) -> list[bytes]:
    """The header of a row, and its endings."""
    return [value[:5], *value[5:].split(b"\n")] if value else []


def _is_last_row(row: bytes, backwards: bytes) -> bool:
    """Whether all endings with this prefix are in this row or before it."""
    return row[(row.rfind(b"\n", 5) + 1) or 5 :] > backwards + b"\xff"


def _ranks_in_row(row: bytes, backwards: bytes) -> Ranks:
    """The ranks of the endings with a prefix, all of them in one row."""
    start_of = b"\n" + backwards
    first = 5 if row.startswith(backwards, 5) else row.find(start_of, 5) + 1
    if not first:
        return 0, 0, True
    last = max(first, row.rfind(start_of, first) + 1)
    start = int.from_bytes(row[:4], "big") + row.count(b"\n", 5, first)
    stop, shift = start + row.count(b"\n", first, last), row[4]
    return start >> shift, (stop >> shift) + 1, shift == 0


def _ranks_between(low: list[bytes], high: list[bytes], backwards: bytes, last: bytes) -> Ranks:
    start, shift = _rank(low, backwards, last)
    stop, shift = _rank(high, backwards + b"\xff", last)
    if stop <= start:
        return 0, 0, True
    return start >> shift, ((stop - 1) >> shift) + 1, shift == 0


def _rank(row: list[bytes], backwards: bytes, last: bytes) -> tuple[int, int]:
    """How many tokens with the same last character precede this ending, and the shift."""
    if not row or not row[1].startswith(last):
        return 0, 0
    return int.from_bytes(row[0][:4], "big") + bisect_left(row, backwards, 1) - 1, row[0][4]
