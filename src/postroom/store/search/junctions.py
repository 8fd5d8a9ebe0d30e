"""Which messages have a string that goes over a border between two tokens?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from postroom.store.search.characters import follow_up, utf8
from postroom.store.search.entries import ALL_RANKS, Entries, Ranks, Rows, take
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


@dataclass
class Found:
    """Messages that surely have the string, and those that must be looked at."""

    sure: Marks
    doubtful: Marks


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
    sure, doubtful = Entries(), Entries()
    for ahead, numbers in shelf.by_ahead(stream, segments, len(tokens)).items():
        key = _key(rest[0], tokens[:ahead])
        rows = _rows(tx, kind, first, key, numbers)
        ranks = _ranks(tx, kind, first, rows)
        for segment, own in rows.items():
            wanted = ranks.get(segment, ALL_RANKS)
            if wanted[0] < wanted[1]:
                is_exact = wanted[2] and len(tokens) == ahead
                inside = sure if is_exact else doubtful
                for entries in (sure, doubtful):
                    entries.begin(segment, wanted)
                take(own, key, inside, doubtful, is_pair=is_pair)
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
) -> dict[int, Rows]:
    each, params = each_of("segment", segments)
    params |= {"junction": kind + Kind.JUNCTION, "key": key, "end": key + b"\xff"}
    sql = JUNCTIONS
    if len(first) > 1:
        sql = f"{ENDINGS} UNION ALL {JUNCTIONS}"
        params |= {"ending": kind + Kind.ENDING, "backwards": utf8(first)[::-1]}
    rows = {segment: Rows() for segment in segments}
    for what, segment, _, value in sorted(tx.all(SEGMENTS.format(each=each) + sql, **params)):
        own = rows[segment]
        if what == _INSIDE:
            own.values.append(value)
        elif what == _BEFORE:
            own.before = value
        else:
            own.ending = value
    return rows


def _ranks(tx: Transaction, kind: int, first: str, rows: Mapping[int, Rows]) -> dict[int, Ranks]:
    """By segment, the ranks of tokens that end like this; and whether they are exact.

    A token of one character has no rank to look for.
    """
    if len(first) == 1:
        return {}
    backwards = utf8(first)[::-1]
    ranks, wide = dict[int, Ranks](), []
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


def _inside(row: bytes, backwards: bytes) -> Ranks:
    """The ranks of what begins like this, all of it in one row: its endings stand side by side."""
    begins = b"\n" + backwards
    first = 5 if row.startswith(backwards, 5) else row.find(begins, 5) + 1
    if not first:
        return 0, 0, True
    last = max(first, row.rfind(begins, first) + 1)
    start = int.from_bytes(row[:4], "big") + row.count(b"\n", 5, first)
    stop, shift = start + row.count(b"\n", first, last), row[4]
    return start >> shift, (stop >> shift) + 1, shift == 0


def _between(low: list[bytes], high: list[bytes], backwards: bytes, last: bytes) -> Ranks:
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
