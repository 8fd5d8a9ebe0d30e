"""Folding: the tail becomes a segment, small segments a larger one, and the dead are buried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from postroom.mail.terms import count_terms
from postroom.store.recall.texts import text_of
from postroom.store.sql.values import any_of, dumps, from_text
from postroom.store.transaction import Row, Transaction

MERGED_SEGMENTS = 8
"""So many small segments become a large one, which stays."""

PLACE, TIMES, NUMBER = np.dtype("<u2"), np.dtype("u1"), np.dtype("<u4")
"""How a segment is written: its leaves; and for each term the places of its leaves among them,
each with how often the term occurs there."""

Posting = tuple[str, bytes]

TAIL = """
    SELECT leaf, length, terms FROM leaves WHERE shelf = :shelf AND terms IS NOT NULL
     ORDER BY leaf LIMIT :limit
"""
FOLDED = """
    UPDATE leaves SET terms = NULL
     WHERE shelf = :shelf AND terms IS NOT NULL AND leaf <= :last
"""
INSERT_SEGMENT = """
    INSERT INTO segments (shelf, segment, level, leaves, lengths)
    VALUES (:shelf, :segment, :level, :leaves, :lengths)
"""
INSERT_POSTING = """
    INSERT INTO postings (shelf, segment, term, entries) VALUES (:shelf, :segment, :term, :entries)
"""
OF_SEGMENTS = """
    SELECT term, segment, entries FROM postings WHERE shelf = :shelf AND segment {among}
     ORDER BY term, segment
"""
SMALL = """
    SELECT segment, leaves, lengths FROM segments
     WHERE shelf = :shelf AND level = 0 ORDER BY segment LIMIT :limit
"""
LIVING = """
    SELECT l.leaf, l.what, s.kind FROM leaves l JOIN shelves s ON s.number = l.shelf
     WHERE l.shelf = :shelf AND l.leaf BETWEEN :first AND :last ORDER BY l.leaf
"""
RENUMBER = """
    UPDATE leaves SET leaf = :new, length = :length, terms = :terms
     WHERE shelf = :shelf AND leaf = :old
"""


def fold_tail(tx: Transaction, shelf: int, limit: int) -> None:
    """Make segments of the tail, of *limit* leaves each; what is left stays in the tail."""
    rows = tx.all(TAIL, shelf=shelf, limit=limit)
    while len(rows) == limit:
        _fold(tx, shelf, rows)
        rows = tx.all(TAIL, shelf=shelf, limit=limit)
    tx.run(
        "UPDATE shelves SET tail = :tail, changes = changes + 1 WHERE number = :shelf",
        tail=len(rows),
        shelf=shelf,
    )
    _merge_small(tx, shelf)


def _fold(tx: Transaction, shelf: int, rows: Sequence[Row]) -> None:
    places: dict[str, list[int]] = {}
    times: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        for term, count in from_text(row[2]).items():
            places.setdefault(term, []).append(place)
            times.setdefault(term, []).append(min(count, 255))
    flat = np.array([place for found in places.values() for place in found], PLACE)
    counts = bytes(count for found in times.values() for count in found)
    postings = _split(places, [len(found) for found in places.values()], flat, counts)
    leaves, lengths = (np.array([row[at] for row in rows], NUMBER) for at in (0, 1))
    _insert(tx, shelf, 0, leaves, lengths, postings)
    tx.run(FOLDED, shelf=shelf, last=rows[-1][0])


def _insert(
    tx: Transaction,
    shelf: int,
    level: int,
    leaves: NDArray[np.uint32],
    lengths: NDArray[np.uint32],
    postings: Iterable[Posting],
) -> None:
    """Write a segment; it is named by its first leaf."""
    segment = int(leaves[0])
    tx.run(
        INSERT_SEGMENT,
        shelf=shelf,
        segment=segment,
        level=level,
        leaves=leaves.tobytes(),
        lengths=lengths.tobytes(),
    )
    rows = (
        {"shelf": shelf, "segment": segment, "term": term, "entries": entries}
        for term, entries in postings
    )
    tx.many(INSERT_POSTING, rows)


def _merge_small(tx: Transaction, shelf: int) -> None:
    small = tx.all(SMALL, shelf=shelf, limit=MERGED_SEGMENTS)
    if len(small) < MERGED_SEGMENTS:
        return
    among, params = any_of("segment", [row[0] for row in small])
    rows = tx.all(OF_SEGMENTS.format(among=among), shelf=shelf, **params)
    leaves = [np.frombuffer(row[1], NUMBER) for row in small]
    lengths = [np.frombuffer(row[2], NUMBER) for row in small]
    ends = np.cumsum([len(found) for found in leaves])
    bases = dict(zip((row[0] for row in small), (0, *ends[:-1]), strict=True))
    _remove(tx, shelf, [row[0] for row in small])
    _insert(tx, shelf, 1, np.concatenate(leaves), np.concatenate(lengths), _merged(rows, bases))
    _merge_small(tx, shelf)


def _merged(rows: Sequence[Row], bases: dict[int, int]) -> Iterator[Posting]:
    """The entries of each term, one segment after the other; the rows come sorted."""
    sizes = [len(row[2]) // 3 for row in rows]
    pairs = list(zip(rows, sizes, strict=True))
    flat = np.frombuffer(b"".join(row[2][: 2 * size] for row, size in pairs), PLACE)
    flat = (flat + np.repeat([bases[row[1]] for row in rows], sizes)).astype(PLACE)
    times = b"".join(row[2][2 * size :] for row, size in pairs)
    totals: dict[str, int] = {}
    for row, size in pairs:
        totals[row[0]] = totals.get(row[0], 0) + size
    return _split(totals, totals.values(), flat, times)


def _split(
    terms: Iterable[str], sizes: Iterable[int], places: NDArray[np.uint16], times: bytes
) -> Iterator[Posting]:
    """Each term with its own part of all places and times, which lie end to end."""
    packed, start = places.tobytes(), 0
    for term, size in zip(terms, sizes, strict=True):
        end = start + size
        yield term, packed[2 * start : 2 * end] + times[start:end]
        start = end


def _remove(tx: Transaction, shelf: int, segments: Sequence[int]) -> None:
    among, params = any_of("segment", segments)
    for table in ("segments", "postings"):
        tx.run(
            f"DELETE FROM {table} WHERE shelf = :shelf AND segment {among}", shelf=shelf, **params
        )


def bury_dead(tx: Transaction, shelf: int) -> None:
    """Forget the dead, and take segments apart that are mostly dead.

    Their living go back to the tail, under new numbers. Readers start anew: `epoch` tells them.
    """
    for segment, packed in tx.all(
        "SELECT segment, leaves FROM segments WHERE shelf = :shelf ORDER BY segment", shelf=shelf
    ):
        leaves = np.frombuffer(packed, NUMBER)
        first, last = int(leaves[0]), int(leaves[-1])
        living = tx.all(LIVING, shelf=shelf, first=first, last=last)
        if 2 * len(living) <= len(leaves):
            _remove(tx, shelf, [segment])
            _back_to_tail(tx, shelf, living)
        else:
            alive = np.array([row[0] for row in living], NUMBER)
            _keep_dead(tx, shelf, segment, np.setdiff1d(leaves, alive))
    tx.run("DELETE FROM dead_leaves WHERE shelf = :shelf", shelf=shelf)
    tx.run("UPDATE shelves SET dead = 0, epoch = epoch + 1 WHERE number = :shelf", shelf=shelf)


def _keep_dead(tx: Transaction, shelf: int, segment: int, dead: NDArray[np.uint32]) -> None:
    """Let a segment itself remember which of its leaves are dead."""
    tx.run(
        "UPDATE segments SET dead = :dead WHERE shelf = :shelf AND segment = :segment",
        dead=dead.astype(NUMBER).tobytes(),
        shelf=shelf,
        segment=segment,
    )


def _back_to_tail(tx: Transaction, shelf: int, living: Sequence[Row]) -> None:
    row = tx.one("SELECT next_leaf FROM shelves WHERE number = :shelf", shelf=shelf)
    new = row[0] if row else 1
    for leaf, what, kind in living:
        counts = count_terms(text_of(tx, kind, what).words)
        terms = dumps(counts)
        tx.run(RENUMBER, shelf=shelf, old=leaf, new=new, length=counts.total(), terms=terms)
        new += 1
    tx.run(
        """UPDATE shelves SET next_leaf = :new, tail = tail + :count, changes = changes + 1
            WHERE number = :shelf""",
        shelf=shelf,
        new=new,
        count=len(living),
    )
