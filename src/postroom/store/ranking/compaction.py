"""Compaction: flushes the buffer into segments, merges small segments, and removes tombstones."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from postroom.mail.text.terms import count_terms
from postroom.store.ranking.index import text_of
from postroom.store.sql.statements import all_among, any_of, dumps, from_text, insert, update
from postroom.store.transaction import Row, Transaction

MERGED_SEGMENTS = 8
"""This many small segments are merged into a large one, which is not merged again."""

DOC_ID, NUMBER = "H", "I"
"""The types of arrays of doc ids in a segment, and of document numbers; a frequency is a byte."""

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
            doc_ids, frequencies = found.setdefault(term, (array(DOC_ID), bytearray()))
            doc_ids.append(doc_id)
            frequencies.append(min(count, 255))
    postings = ((term, own.tobytes() + counts) for term, (own, counts) in found.items())
    documents, lengths = (array(NUMBER, [row[at] for row in rows]) for at in (0, 1))
    _insert(tx, collection, 0, documents, lengths, postings)
    tx.run(CLEAR_TERMS, collection=collection, last=rows[-1][0])


def _insert(
    tx: Transaction,
    collection: int,
    level: int,
    documents: array[int],
    lengths: array[int],
    postings: Iterable[Posting],
) -> None:
    """Write a segment; its number is that of its first document."""
    segment = documents[0]
    name = {"collection": collection, "segment": segment}
    arrays = {"documents": documents.tobytes(), "lengths": lengths.tobytes()}
    insert(tx, "ranking_segments", **name, **arrays, level=level)
    rows = ({**name, "term": term, "entries": entries} for term, entries in postings)
    tx.many(INSERT_POSTING, rows)


def _merge_small(tx: Transaction, collection: int) -> None:
    small = tx.all(SMALL_SEGMENTS, collection=collection, limit=MERGED_SEGMENTS)
    if len(small) < MERGED_SEGMENTS:
        return
    rows = all_among(tx, POSTINGS, [row[0] for row in small], collection=collection)
    documents, lengths, bases = array(NUMBER), array(NUMBER), dict[int, int]()
    for segment, own_documents, own_lengths, _ in small:
        bases[segment] = len(documents)
        documents.frombytes(own_documents)
        lengths.frombytes(own_lengths)
    _remove(tx, collection, [row[0] for row in small])
    _insert(tx, collection, 1, documents, lengths, _merged(rows, bases))
    deleted = b"".join(row[3] or b"" for row in small)
    _store_tombstones(tx, collection, small[0][0], deleted)
    _merge_small(tx, collection)


def _merged(rows: Sequence[Row], bases: dict[int, int]) -> Iterator[Posting]:
    """The postings of each term, concatenated; *rows* are sorted by term and segment."""
    for term, own in groupby(rows, key=itemgetter(0)):
        doc_ids, frequencies = array(DOC_ID), bytearray()
        for _, segment, packed in own:
            count, base = len(packed) // 3, bases[segment]
            found = array(DOC_ID, packed[: 2 * count])
            doc_ids.extend(found if not base else array(DOC_ID, [n + base for n in found]))
            frequencies += packed[2 * count :]
        yield term, doc_ids.tobytes() + frequencies


def _remove(tx: Transaction, collection: int, segments: Sequence[int]) -> None:
    among, params = any_of("segment", segments)
    for table in ("ranking_segments", "ranking_postings"):
        sql = f"DELETE FROM {table} WHERE collection = :collection AND segment {among}"
        tx.run(sql, collection=collection, **params)


def purge_deleted(tx: Transaction, collection: int) -> None:
    """Move tombstones into segments, and remove segments that are mostly deleted.

    Their live documents return to the buffer under the same numbers, so cursors stay valid. Readers
    start again, because `epoch` changes.
    """
    live = {row[0]: row for row in tx.all(LIVE_DOCUMENTS, collection=collection)}
    sql = """
        SELECT segment, documents FROM ranking_segments
         WHERE collection = :collection ORDER BY segment
    """
    for segment, packed in tx.all(sql, collection=collection):
        documents = array(NUMBER, packed)
        deleted = array(NUMBER, [document for document in documents if document not in live])
        if 2 * len(deleted) >= len(documents):
            _remove(tx, collection, [segment])
            _return_to_buffer(tx, collection, [live[d] for d in documents if d in live])
        else:
            _store_tombstones(tx, collection, segment, deleted.tobytes())
    tx.run("DELETE FROM ranking_deletions WHERE collection = :collection", collection=collection)
    sql = "UPDATE ranking_collections SET deleted = 0, epoch = epoch + 1 WHERE number = :collection"
    tx.run(sql, collection=collection)


def _store_tombstones(tx: Transaction, collection: int, segment: int, deleted: bytes) -> None:
    key = {"collection": collection, "segment": segment}
    update(tx, "ranking_segments", key, deleted=deleted)


def _return_to_buffer(tx: Transaction, collection: int, live: Sequence[Row]) -> None:
    for document, source, kind in live:
        counts = count_terms(text_of(tx, kind, source).for_terms)
        key = {"collection": collection, "document": document}
        update(tx, "ranking_documents", key, terms=dumps(counts))
    tx.run(ADD_BUFFERED, collection=collection, count=len(live))
