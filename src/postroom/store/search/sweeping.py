"""Segments that are gone leave the tables, a little with each short transaction."""

from __future__ import annotations

from postroom.store.search.segments import GONE
from postroom.store.sql.values import any_of
from postroom.store.transaction import Transaction

_AT_ONCE = 500

SOME_SETS = "SELECT name FROM search_sets WHERE segment = :segment LIMIT :most"
LAST_OF_SOME = """
    SELECT kind, key, part FROM search_rows WHERE segment = :segment
     ORDER BY kind, key, part LIMIT 1 OFFSET :offset
"""
DROP_SOME = """
    DELETE FROM search_rows
     WHERE segment = :segment AND (kind, key, part) <= (:kind, :key, :part)
"""


def sweep(tx: Transaction) -> bool:
    """Remove some rows or sets of a segment that is gone; False when there is none."""
    row = tx.one("SELECT number FROM search_segments WHERE state = :gone LIMIT 1", gone=GONE)
    if row is None:
        return False
    if not _drop_rows(tx, row[0]) and not _drop_sets(tx, row[0]):
        tx.run("DELETE FROM search_segments WHERE number = :segment", segment=row[0])
    return True


def _drop_rows(tx: Transaction, segment: int) -> bool:
    last = tx.one(LAST_OF_SOME, segment=segment, offset=_AT_ONCE)
    if last is None:
        return tx.run("DELETE FROM search_rows WHERE segment = :segment", segment=segment) > 0
    tx.run(DROP_SOME, segment=segment, kind=last[0], key=last[1], part=last[2])
    return True


def _drop_sets(tx: Transaction, segment: int) -> bool:
    names = [row[0] for row in tx.all(SOME_SETS, segment=segment, most=_AT_ONCE)]
    among, params = any_of("name", names)
    sql = f"DELETE FROM search_sets WHERE segment = :segment AND name {among}"
    return bool(names) and tx.run(sql, segment=segment, **params) > 0
