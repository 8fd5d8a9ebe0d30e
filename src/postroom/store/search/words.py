"""Which messages have a token that contains a string?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from postroom.store.search.arrays import U16, U32, Bools, spans
from postroom.store.search.kinds import STREAM, Kind
from postroom.store.search.rows import mark
from postroom.store.search.shelf import Shelf
from postroom.store.search.word_rows import ALONE, FEW, KEY_BYTES, LARGE, SHORTS_PER_ROW
from postroom.store.sql.values import any_of
from postroom.store.transaction import Row, Transaction

READY = """
    SELECT segment, value FROM search_rows
     WHERE segment {among} AND kind = :kind AND key = :key AND part = 0
"""
SUFFIXES = """
    SELECT segment, value FROM search_rows
     WHERE segment {among} AND kind = :kind AND key >= :key AND key < :end
     ORDER BY segment, key, part
"""
SUFFIXES_BEFORE = """
    SELECT s.number, (
        SELECT r.value FROM search_rows r
         WHERE r.segment = s.number AND r.kind = :kind AND r.key < :key
         ORDER BY r.key DESC, r.part DESC LIMIT 1
    ) FROM search_segments s WHERE s.number {among}
"""
PARTS = """
    SELECT value FROM search_rows
     WHERE segment = :segment AND kind = :kind AND key = :key AND part {among} ORDER BY part
"""


def find_words(
    tx: Transaction, shelf: Shelf, stream: int, text: bytes, segments: Sequence[int]
) -> Bools:
    """The messages of some segments that have a token with this text in it."""
    found = shelf.none()
    among, params = any_of("segment", segments)
    kind = STREAM * stream
    ready = tx.all(READY.format(among=among), **params, kind=kind + Kind.GRAM, key=text)
    for segment, value in ready:
        mark(shelf.part(found, segment), value)
    others = sorted(set(segments) - {row[0] for row in ready})
    if others:
        for segment, rows in groupby(_suffixes(tx, kind, text, others), key=lambda row: row[0]):
            references = _references([row[1] for row in rows if row[1]], text)
            _follow(tx, shelf.part(found, segment), segment, kind, references)
    return found


def _suffixes(tx: Transaction, kind: int, text: bytes, segments: Sequence[int]) -> list[Row]:
    """All rows that can have a suffix which begins with the text, by segment."""
    among, params = any_of("segment", segments)
    key = text[:KEY_BYTES]
    suffix = kind + Kind.SUFFIX
    before = tx.all(SUFFIXES_BEFORE.format(among=among), **params, kind=suffix, key=key)
    rows = tx.all(SUFFIXES.format(among=among), **params, kind=suffix, key=key, end=key + b"\xff")
    return sorted([*before, *rows], key=lambda row: row[0])


def _references(values: Sequence[bytes], text: bytes) -> U32:
    """What the suffixes that begin with the text refer to."""
    found = [np.zeros(0, np.uint32)]
    for value in values:
        size = int.from_bytes(value[:2], "big")
        names = value[2 : 2 + size].split(b"\n")
        first, last = bisect_left(names, text), bisect_left(names, text + b"\xff")
        found.append(np.frombuffer(value, "<u4", last - first, 2 + size + 4 * first))
    return np.concatenate(found)


def _follow(tx: Transaction, found: Bools, segment: int, kind: int, references: U32) -> None:
    """Mark the messages that references lead to."""
    if not len(references):
        return
    alone = references >= ALONE
    found[references[alone] & np.uint32(ALONE - 1)] = True
    large = (references >= LARGE) & ~alone
    if large.any():
        terms = np.unique(references[large] & np.uint32(LARGE - 1)).tolist()
        for value in _parts(tx, segment, kind + Kind.LARGE, terms):
            mark(found, value)
    places = np.unique(references[~alone & ~large]).astype(np.int64)
    if len(places):
        found[_shorts(tx, segment, kind, places)] = True


def _shorts(tx: Transaction, segment: int, kind: int, places: np.ndarray) -> U16:
    """The messages at some places of the terms that have few."""
    parts = np.unique([places // SHORTS_PER_ROW, (places + FEW) // SHORTS_PER_ROW])
    values = list(_parts(tx, segment, kind + Kind.POSTING, parts.tolist()))
    shorts = np.frombuffer(b"".join(values), "<u2")
    own = np.searchsorted(parts, places // SHORTS_PER_ROW) * SHORTS_PER_ROW
    starts = own + places % SHORTS_PER_ROW
    return shorts[spans(starts + 1, shorts[starts].astype(np.int64))]


def _parts(tx: Transaction, segment: int, kind: int, parts: Sequence[int]) -> list[bytes]:
    values = []
    for first in range(0, len(parts), 250):
        among, params = any_of("part", parts[first : first + 250])
        rows = tx.all(PARTS.format(among=among), **params, segment=segment, kind=kind, key=b"")
        values += [row[0] for row in rows]
    return values
