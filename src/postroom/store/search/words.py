"""Which messages have a token that contains a string?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from postroom.store.search.arrays import Bools
from postroom.store.search.characters import utf8
from postroom.store.search.kinds import STREAM, Kind
from postroom.store.search.rows import mark
from postroom.store.search.shelf import Shelf
from postroom.store.search.word_rows import ALONE, FEW, KEY_BYTES, LARGE, SHORTS_PER_ROW
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

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
_AT_ONCE = 200


def find_words(
    tx: Transaction, shelf: Shelf, stream: int, part: str, segments: Sequence[int]
) -> Bools:
    """The messages of some segments that have a token with this part in it."""
    found = shelf.none()
    text = utf8(part)
    kind = STREAM * stream
    among, params = any_of("segment", segments)
    ready = tx.all(READY.format(among=among), **params, kind=kind + Kind.GRAM, key=text)
    for segment, value in ready:
        mark(shelf.part(found, segment), [value])
    others = set(segments) - {row[0] for row in ready}
    for segment, references in _references(tx, kind, text, sorted(others)).items():
        _follow(tx, shelf.part(found, segment), segment, kind, references)
    return found


def _references(
    tx: Transaction, kind: int, text: bytes, segments: Sequence[int]
) -> dict[int, set[int]]:
    """By segment, what the suffixes that begin with the text refer to."""
    if not segments:
        return {}
    among, params = any_of("segment", segments)
    key, suffix = text[:KEY_BYTES], kind + Kind.SUFFIX
    rows = tx.all(SUFFIXES_BEFORE.format(among=among), **params, kind=suffix, key=key)
    rows += tx.all(SUFFIXES.format(among=among), **params, kind=suffix, key=key, end=key + b"\xff")
    found: dict[int, set[int]] = {}
    for segment, value in rows:
        if value and (own := _in_row(value, text)):
            found.setdefault(segment, set()).update(own)
    return found


def _in_row(value: bytes, text: bytes) -> Sequence[int]:
    size = int.from_bytes(value[:2], "big")
    if value.find(text, 2, 2 + size) < 0:
        return ()
    names = value[2 : 2 + size].split(b"\n")
    first, last = bisect_left(names, text), bisect_left(names, text + b"\xff")
    start = 2 + size
    return memoryview(value)[start + 4 * first : start + 4 * last].cast("I").tolist()


def _follow(
    tx: Transaction, found: Bools, segment: int, kind: int, references: Iterable[int]
) -> None:
    """Mark the messages that references lead to."""
    docs, terms, places = [], [], []
    for reference in references:
        if reference >= ALONE:
            docs.append(reference - ALONE)
        elif reference >= LARGE:
            terms.append(reference - LARGE)
        else:
            places.append(reference)
    if terms:
        mark(found, _parts(tx, segment, kind + Kind.LARGE, sorted(terms)))
    if places:
        docs += _shorts(tx, segment, kind, places)
    found[np.array(docs, np.int64)] = True


def _shorts(tx: Transaction, segment: int, kind: int, places: Sequence[int]) -> list[int]:
    """The messages at some places of the terms that have few."""
    parts = sorted({at // SHORTS_PER_ROW for place in places for at in (place, place + FEW)})
    values = b"".join(_parts(tx, segment, kind + Kind.POSTING, parts))
    shorts = memoryview(values).cast("H")
    bases = {part: at * SHORTS_PER_ROW for at, part in enumerate(parts)}
    docs: list[int] = []
    for place in places:
        start = bases[place // SHORTS_PER_ROW] + place % SHORTS_PER_ROW
        docs += shorts[start + 1 : start + 1 + shorts[start]]
    return docs


def _parts(tx: Transaction, segment: int, kind: int, parts: Sequence[int]) -> list[bytes]:
    values = []
    for first in range(0, len(parts), _AT_ONCE):
        among, params = any_of("part", parts[first : first + _AT_ONCE])
        rows = tx.all(PARTS.format(among=among), **params, segment=segment, kind=kind, key=b"")
        values += [row[0] for row in rows]
    return values
