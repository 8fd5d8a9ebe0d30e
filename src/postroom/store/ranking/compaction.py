"""Compaction: flushes the buffer into segments, merges small segments, and removes tombstones."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from postroom.mail.text.terms import count_terms
from postroom.store.ranking.documents import text_of
from postroom.store.sql.values import any_of, dumps, from_text
from postroom.store.transaction import Row, Transaction

MERGED_SEGMENTS = 8
"""This many small segments are merged into a large one, which is not merged again."""

DOC_ID, FREQUENCY, NUMBER = np.dtype("<u2"), np.dtype("u1"), np.dtype("<u4")
"""The encodings of doc ids in a segment, of frequencies, and of document numbers."""

Posting = tuple[str, bytes]

BUFFER = """
    SELECT document, length, terms FROM ranking_documents
     WHERE collection = :collection AND terms IS NOT NULL
     ORDER BY document LIMIT :limit
"""
CLEAR_TERMS = """
    UPDATE ranking_documents SET terms = NULL
     WHERE collection = :collection AND terms IS NOT NULL AND document <= :last
"""
INSERT_SEGMENT = """
    INSERT INTO ranking_segments (collection, segment, level, documents, lengths)
    VALUES (:collection, :segment, :level, :documents, :lengths)
"""
INSERT_POSTING = """
    INSERT INTO ranking_postings (collection, segment, term, entries)
    VALUES (:collection, :segment, :term, :entries)
"""
POSTINGS = """
    SELECT term, segment, entries FROM ranking_postings
     WHERE collection = :collection AND segment {among}
     ORDER BY term, segment
"""
SMALL_SEGMENTS = """
    SELECT segment, documents, lengths, deleted FROM ranking_segments
     WHERE collection = :collection AND level = 0 ORDER BY segment LIMIT :limit
"""
LIVE_DOCUMENTS = """
    SELECT l.document, l.item, s.kind FROM ranking_documents l
     JOIN ranking_collections s ON s.number = l.collection
     WHERE l.collection = :collection
"""
SET_BUFFERED = """
    UPDATE ranking_collections SET buffered = :buffered, changes = changes + 1
     WHERE number = :collection
"""
ADD_BUFFERED = """
    UPDATE ranking_collections SET buffered = buffered + :count, changes = changes + 1
     WHERE number = :collection
"""
RESTORE_TERMS = """
    UPDATE ranking_documents SET terms = :terms
     WHERE collection = :collection AND document = :document
"""


def flush_buffer(tx: Transaction, collection: int, limit: int) -> None:
    """Write segments of *limit* buffered documents each; the rest stays in the buffer."""
    rows = tx.all(BUFFER, collection=collection, limit=limit)
    while len(rows) == limit:
        _write_segment(tx, collection, rows)
        rows = tx.all(BUFFER, collection=collection, limit=limit)
    tx.run(SET_BUFFERED, buffered=len(rows), collection=collection)
    _merge_small(tx, collection)


def _write_segment(tx: Transaction, collection: int, rows: Sequence[Row]) -> None:
    found: dict[str, tuple[array[int], bytearray]] = {}
    for doc_id, row in enumerate(rows):
        for term, count in from_text(row[2]).items():
            doc_ids, frequencies = found.setdefault(term, (array("H"), bytearray()))
            doc_ids.append(doc_id)
            frequencies.append(min(count, 255))
    postings = ((term, own.tobytes() + counts) for term, (own, counts) in found.items())
    documents, lengths = (np.array([row[at] for row in rows], NUMBER) for at in (0, 1))
    _insert(tx, collection, 0, documents, lengths, postings)
    tx.run(CLEAR_TERMS, collection=collection, last=rows[-1][0])


def _insert(
    tx: Transaction,
    collection: int,
    level: int,
    documents: NDArray[np.uint32],
    lengths: NDArray[np.uint32],
    postings: Iterable[Posting],
) -> None:
    """Write a segment; its number is that of its first document."""
    segment = int(documents[0])
    name = {"collection": collection, "segment": segment}
    arrays = {"documents": documents.tobytes(), "lengths": lengths.tobytes()}
    tx.run(INSERT_SEGMENT, **name, **arrays, level=level)
    rows = ({**name, "term": term, "entries": entries} for term, entries in postings)
    tx.many(INSERT_POSTING, rows)


def _merge_small(tx: Transaction, collection: int) -> None:
    small = tx.all(SMALL_SEGMENTS, collection=collection, limit=MERGED_SEGMENTS)
    if len(small) < MERGED_SEGMENTS:
        return
    among, params = any_of("segment", [row[0] for row in small])
    rows = tx.all(POSTINGS.format(among=among), collection=collection, **params)
    documents = [np.frombuffer(row[1], NUMBER) for row in small]
    lengths = [np.frombuffer(row[2], NUMBER) for row in small]
    ends = np.cumsum([len(found) for found in documents])
    bases = dict(zip((row[0] for row in small), (0, *ends[:-1]), strict=True))
    _remove(tx, collection, [row[0] for row in small])
    merged = _merged(rows, bases)
    _insert(tx, collection, 1, np.concatenate(documents), np.concatenate(lengths), merged)
    deleted = b"".join(row[3] or b"" for row in small)
    _store_tombstones(tx, collection, small[0][0], np.frombuffer(deleted, NUMBER))
    _merge_small(tx, collection)


def _merged(rows: Sequence[Row], bases: dict[int, int]) -> Iterator[Posting]:
    """The postings of each term, concatenated; *rows* are sorted by term and segment."""
    sizes = [len(row[2]) // 3 for row in rows]
    pairs = list(zip(rows, sizes, strict=True))
    flat = np.frombuffer(b"".join(row[2][: 2 * size] for row, size in pairs), DOC_ID)
    flat = (flat + np.repeat([bases[row[1]] for row in rows], sizes)).astype(DOC_ID)
    frequencies = b"".join(row[2][2 * size :] for row, size in pairs)
    totals: dict[str, int] = {}
    for row, size in pairs:
        totals[row[0]] = totals.get(row[0], 0) + size
    doc_ids, start = flat.tobytes(), 0
    for term, total in totals.items():
        end = start + total
        yield term, doc_ids[2 * start : 2 * end] + frequencies[start:end]
        start = end


def _remove(tx: Transaction, collection: int, segments: Sequence[int]) -> None:
    among, params = any_of("segment", segments)
    for table in ("ranking_segments", "ranking_postings"):
        sql = f"DELETE FROM {table} WHERE collection = :collection AND segment {among}"
        tx.run(sql, collection=collection, **params)


def purge_deleted(tx: Transaction, collection: int) -> None:
    """Move tombstones into segments, and dissolve segments that are mostly deleted.

    Their live documents return to the buffer under the same numbers, so cursors stay valid. Readers
    start again, because `epoch` changes.
    """
    live = {row[0]: row for row in tx.all(LIVE_DOCUMENTS, collection=collection)}
    numbers = np.array(list(live), NUMBER)
    sql = """
        SELECT segment, documents FROM ranking_segments
         WHERE collection = :collection ORDER BY segment
    """
    for segment, packed in tx.all(sql, collection=collection):
        documents = np.frombuffer(packed, NUMBER)
        is_deleted = np.isin(documents, numbers, invert=True)
        if 2 * np.count_nonzero(is_deleted) >= len(documents):
            _remove(tx, collection, [segment])
            remaining = [live[document] for document in documents[~is_deleted].tolist()]
            _return_to_buffer(tx, collection, remaining)
        else:
            _store_tombstones(tx, collection, segment, documents[is_deleted])
    tx.run("DELETE FROM ranking_deletions WHERE collection = :collection", collection=collection)
    sql = "UPDATE ranking_collections SET deleted = 0, epoch = epoch + 1 WHERE number = :collection"
    tx.run(sql, collection=collection)


def _store_tombstones(
    tx: Transaction, collection: int, segment: int, deleted: NDArray[np.uint32]
) -> None:
    sql = """
        UPDATE ranking_segments SET deleted = :deleted
         WHERE collection = :collection AND segment = :segment
    """
    packed = deleted.astype(NUMBER).tobytes()
    tx.run(sql, deleted=packed, collection=collection, segment=segment)


def _return_to_buffer(tx: Transaction, collection: int, live: Sequence[Row]) -> None:
    for document, source, kind in live:
        counts = count_terms(text_of(tx, kind, source).words)
        tx.run(RESTORE_TERMS, collection=collection, document=document, terms=dumps(counts))
    tx.run(ADD_BUFFERED, collection=collection, count=len(live))
