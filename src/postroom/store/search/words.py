"""Which messages have a token that contains a string?"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence

from postroom.store.search.characters import utf8
from postroom.store.search.kinds import STREAM, Kind
from postroom.store.search.masks import Marks, Mask
from postroom.store.search.shelf import Shelf
from postroom.store.search.word_rows import ALONE, FEW, KEY_BYTES, LARGE, SHORTS_PER_ROW
from postroom.store.sql.values import any_of, any_pair, each_of, in_lots
from postroom.store.transaction import Transaction

READY = """
    SELECT segment, value FROM search_rows
     WHERE segment {among} AND kind = :kind AND key = :key AND part = 0
"""
SUFFIXES = """
    WITH s (number) AS ({each})
    SELECT s.number, (
        SELECT r.value FROM search_rows r
         WHERE r.segment = s.number AND r.kind = :kind AND r.key < :key
         ORDER BY r.key DESC, r.part DESC LIMIT 1
    ) FROM s
    UNION ALL
    SELECT s.number, r.value FROM s CROSS JOIN search_rows r
     WHERE r.segment = s.number AND r.kind = :kind AND r.key >= :key AND r.key < :end
"""
"""What stands before a key, and all that begins with it."""

PARTS = """
    SELECT segment, part, value FROM search_rows
     WHERE kind = :kind AND key = :key AND (segment, part) {among}
"""
Pair = tuple[int, int]
"""A segment, and something in it."""

_AT_ONCE = 200


def find_words(
    tx: Transaction, shelf: Shelf, stream: int, part: str, segments: Sequence[int]
) -> Mask:
    """The messages of some segments that have a token with this part in it."""
    found = Marks(shelf)
    text = utf8(part)
    kind = STREAM * stream
    among, params = any_of("segment", segments)
    ready = tx.all(READY.format(among=among), **params, kind=kind + Kind.GRAM, key=text)
    for segment, value in ready:
        found.add(segment, value)
    others = set(segments) - {row[0] for row in ready}
    _follow(tx, found, kind, _references(tx, kind, text, sorted(others)))
    return found.mask()


def _references(
    tx: Transaction, kind: int, text: bytes, segments: Sequence[int]
) -> dict[int, set[int]]:
    """By segment, what the suffixes that begin with the text refer to."""
    if not segments:
        return {}
    each, params = each_of("segment", segments)
    key, suffix = text[:KEY_BYTES], kind + Kind.SUFFIX
    rows = tx.all(SUFFIXES.format(each=each), **params, kind=suffix, key=key, end=key + b"\xff")
    found: dict[int, set[int]] = {}
    for segment, value in rows:
        if value and (own := _in_row(value, text)):
            found.setdefault(segment, set()).update(own)
    return found


def _in_row(value: bytes, text: bytes) -> Sequence[int]:
    """What the names of a row that begin with the text refer to: they stand side by side."""
    end = 2 + int.from_bytes(value[:2], "big")
    begins = b"\n" + text
    last = value.rfind(begins, 2, end) + 1
    first = 2 if value.startswith(text, 2, end) else value.find(begins, 2, end) + 1
    if not first:
        return ()
    low = value.count(b"\n", 2, first)
    high = value.count(b"\n", 2, max(first, last)) + 1
    return memoryview(value)[end + 4 * low : end + 4 * high].cast("I").tolist()


def _follow(
    tx: Transaction, found: Marks, kind: int, references: Mapping[int, Iterable[int]]
) -> None:
    """Mark the messages that the references of segments lead to."""
    terms: list[Pair] = []
    places: list[Pair] = []
    for segment, own in references.items():
        alone = array("H")
        for reference in own:
            if reference >= ALONE:
                alone.append(reference - ALONE)
            elif reference >= LARGE:
                terms.append((segment, reference - LARGE))
            else:
                places.append((segment, reference))
        found.add_places(segment, alone.tobytes())
    for (segment, _), value in _parts(tx, kind + Kind.LARGE, terms):
        found.add(segment, value)
    _mark_few(tx, found, kind, places)


def _mark_few(tx: Transaction, found: Marks, kind: int, places: Sequence[Pair]) -> None:
    """Mark the messages at some places of the terms that have few."""
    wanted = {(s, at // SHORTS_PER_ROW) for s, place in places for at in (place, place + FEW)}
    rows = dict(_parts(tx, kind + Kind.POSTING, sorted(wanted)))
    for segment, place in places:
        part, start = divmod(place, SHORTS_PER_ROW)
        row = rows[segment, part]
        size = int.from_bytes(row[2 * start : 2 * start + 2], "little")
        docs = row[2 * start + 2 : 2 * (start + size + 1)]
        if len(docs) < 2 * size:
            docs += rows[segment, part + 1][: 2 * size - len(docs)]
        found.add_places(segment, docs)


def _parts(tx: Transaction, kind: int, wanted: Sequence[Pair]) -> Iterator[tuple[Pair, bytes]]:
    """Some parts of some segments."""
    for first in range(0, len(wanted), _AT_ONCE):
        among, params = any_pair("part", in_lots(wanted[first : first + _AT_ONCE]))
        for segment, part, value in tx.all(PARTS.format(among=among), **params, kind=kind, key=b""):
            yield (segment, part), value
