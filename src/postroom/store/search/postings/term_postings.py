"""Term postings: which messages have a token that contains a string? See README.md."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from postroom.store.search.segments.segment import STREAM, Kind, SegmentRow
from postroom.store.search.segments.snapshot import (
    Mask,
    MaskBuilder,
    Snapshot,
    encode_doc_ids,
    encode_mask,
)
from postroom.store.search.tokens.arrays import (
    U8,
    U16,
    U32,
    U64,
    Bools,
    Int,
    TempFile,
    is_first,
    spans,
)
from postroom.store.search.tokens.boundaries import utf8
from postroom.store.search.tokens.tokenizer import (
    Suffixes,
    Terms,
    TokenizedTexts,
    TokenRun,
    sorted_suffixes,
)
from postroom.store.sql.statements import any_of, any_pair, each_of, padded
from postroom.store.transaction import Transaction


def cache_threshold(count: int) -> int:
    """The messages of a string are cached if more suffixes than this start with it.

    In a small segment it is cheaper to read all postings.
    """
    return 64 if count >= 1 << 15 else 128 if count >= 1 << 11 else 512


@dataclass(frozen=True, slots=True)
class Postings:
    """The messages of each term: `counts` of them in `docs`, from `starts` on."""

    starts: Int
    counts: Int
    docs: U16

    def of(self, term: int) -> U16:
        start = self.starts[term]
        return self.docs[start : start + self.counts[term]]


class CachedPostings:
    """Collects cached postings from sorted suffixes, which may come in several batches."""

    def __init__(self, postings: Postings, count: int) -> None:
        self._postings = postings
        self._count = count
        self._threshold = cache_threshold(count)
        self._byte = b""
        self._suffix_count = 0
        self._mask = self._empty_mask()

    def add(self, suffixes: Suffixes) -> list[SegmentRow]:
        """Add suffixes, and return the rows of strings that are complete."""
        rows: list[SegmentRow] = []
        leads = suffixes.flat[suffixes.starts]
        for first, last in _runs(leads):
            byte = bytes([int(leads[first])])
            if byte != self._byte:
                rows += self.finish()
                self._byte, self._suffix_count, self._mask = byte, 0, self._empty_mask()
            self._suffix_count += last - first
            self._mask |= self._union(suffixes, first, last, 1, rows)
        return rows

    def finish(self) -> list[SegmentRow]:
        """The row of the last byte, if it is cached."""
        if self._suffix_count <= self._threshold or self._byte >= b"\x80":
            return []
        return [SegmentRow(Kind.CACHED, self._byte, 0, encode_mask(self._mask))]

    def _empty_mask(self) -> Bools:
        return np.zeros(self._count, np.bool_)

    def _union(
        self, suffixes: Suffixes, first: int, last: int, depth: int, rows: list[SegmentRow]
    ) -> Bools:
        """The messages of some neighbours, which share *depth* bytes; adds the rows to cache."""
        mask = self._empty_mask()
        if last - first <= self._threshold:
            self._mark(mask, suffixes.terms[first:last])
            return mask
        lengths = suffixes.lengths[first:last]
        following = suffixes.flat[suffixes.starts[first:last] + np.minimum(depth, lengths)]
        is_small = np.ones(last - first, np.bool_)
        for start, stop in _runs(following):
            if stop - start > self._threshold and lengths[start] > depth:
                mask |= self._union(suffixes, first + start, first + stop, depth + 1, rows)
                is_small[start:stop] = False
        self._mark(mask, suffixes.terms[first:last][is_small])
        if depth > 1 and (following[-1] & 0xC0) != 0x80:
            start = int(suffixes.starts[first])
            key = suffixes.flat[start : start + depth].tobytes()
            rows.append(SegmentRow(Kind.CACHED, key, 0, encode_mask(mask)))
        return mask

    def _mark(self, mask: Bools, terms: Int) -> None:
        postings = self._postings
        places = spans(postings.starts.take(terms), postings.counts.take(terms))
        mask[postings.docs.take(places)] = True


def _runs(values: U8) -> Iterator[tuple[int, int]]:
    """Ranges of equal values."""
    return pairwise([*np.flatnonzero(is_first(values)).tolist(), len(values)])


PER_ROW = 128
KEY_BYTES = 16

SINGLE_DOC, LARGE_POSTINGS = 1 << 31, 1 << 30
"""A reference with the first bit is the only message of the term; with the second, it is the term,
whose messages have a row of their own. Any other is an offset in the small postings, where each
list follows its length."""

MAX_SMALL = 128
SHORTS_PER_ROW = 2_000
"""Two bytes each, so that a row fits on one page of the database."""


def collect_postings(text: TokenizedTexts) -> Postings:
    """The messages of each term, in the order of the texts."""
    counts = np.zeros(len(text.terms), np.int64)
    with closing(TempFile()) as spill:
        parts = []
        for run in text.runs():
            terms, docs = _term_docs(run, text.space_flag)
            counts += np.bincount(terms, minlength=len(counts))
            parts.append((spill.put(terms), spill.put(docs.astype(np.uint32))))
        starts = np.cumsum(counts) - counts
        docs = np.empty(int(counts.sum()), np.uint16)
        free = starts.copy()
        for at_terms, at_docs in parts:
            terms = spill.get(at_terms)
            firsts = np.flatnonzero(is_first(terms))
            sizes = np.diff(np.append(firsts, len(terms)))
            docs[spans(free[terms[firsts]], sizes)] = spill.get(at_docs)
            free[terms[firsts]] += sizes
    return Postings(starts, counts, docs)


def _term_docs(run: TokenRun, space_flag: int) -> tuple[U32, U16]:
    """Each term of a run with each of its messages, sorted by term."""
    # Sorting takes half the time if a term and its message fit into 32 bits.
    pairs: U32 | U64 = run.sequence & np.uint32(space_flag - 1)
    if space_flag > 1 << 16:
        pairs = pairs.astype(np.uint64)
    pairs <<= np.uint8(16)
    pairs |= run.docs
    pairs.sort()
    pairs = pairs.compress(is_first(pairs))
    pairs = pairs[np.searchsorted(pairs, 1 << 16) :]  # without what is between texts
    terms, docs = (pairs >> np.uint8(16)).astype(np.uint32), pairs.astype(np.uint16)
    return terms - np.uint32(1), docs


def term_rows(terms: Terms, postings: Postings, count: int) -> Iterator[SegmentRow]:
    """All rows about the terms of a segment with *count* messages."""
    references, shorts = _encode_small(postings)
    for part, first in enumerate(range(0, len(shorts), SHORTS_PER_ROW)):
        value = shorts[first : first + SHORTS_PER_ROW].tobytes()
        yield SegmentRow(Kind.SMALL_POSTINGS, b"", part, value)
    for term in np.flatnonzero(postings.counts > MAX_SMALL).tolist():
        yield SegmentRow(Kind.LARGE_POSTINGS, b"", term, encode_doc_ids(postings.of(term), count))
    cached, parts = CachedPostings(postings, count), itertools.count()
    for suffixes in sorted_suffixes(terms):
        yield from _suffix_rows(suffixes, references, parts)
        yield from cached.add(suffixes)
    yield from cached.finish()


def _encode_small(postings: Postings) -> tuple[U32, U16]:
    """The reference of each term, and the postings of terms with few messages."""
    references = np.arange(len(postings.counts), dtype=np.uint32) | np.uint32(LARGE_POSTINGS)
    single = postings.counts == 1
    references[single] = postings.docs[postings.starts[single]] | np.uint32(SINGLE_DOC)
    small = np.flatnonzero(~single & (postings.counts <= MAX_SMALL))
    counts = postings.counts[small]
    ends = np.cumsum(counts + 1)
    offsets = ends - counts - 1
    references[small] = offsets
    shorts = np.empty(int(ends[-1]) if len(ends) else 0, "<u2")
    shorts[offsets] = counts
    shorts[spans(offsets + 1, counts)] = postings.docs.take(spans(postings.starts[small], counts))
    return references, shorts


def _suffix_rows(suffixes: Suffixes, by_term: U32, parts: Iterator[int]) -> Iterator[SegmentRow]:
    references = by_term.take(suffixes.terms).astype("<u4").tobytes()
    lengths = suffixes.lengths + 1
    texts = suffixes.flat.take(spans(suffixes.starts, lengths)).tobytes()
    ends = [0, *np.cumsum(lengths).tolist()]
    for start in range(0, len(lengths), PER_ROW):
        stop = min(start + PER_ROW, len(lengths))
        names = texts[ends[start] : ends[stop] - 1]
        key = texts[ends[start] : min(ends[start + 1] - 1, ends[start] + KEY_BYTES)]
        value = len(names).to_bytes(2, "big") + names + references[4 * start : 4 * stop]
        yield SegmentRow(Kind.SUFFIX, key, next(parts), value)


CACHED_ROWS = """
    SELECT segment, value FROM search_rows
     WHERE segment {among} AND kind = :kind AND key = :key AND part = 0
"""
SEGMENTS = "WITH s (number) AS ({each})"
AT_KEY = """
    SELECT 1, s.number, 0, (
        SELECT r.value FROM search_rows r
         WHERE r.segment = s.number AND r.kind = :kind AND r.key < :key
         ORDER BY r.key DESC, r.part DESC LIMIT 1
    ) FROM s
    UNION ALL
    SELECT 2, s.number, r.part, r.value FROM s CROSS JOIN search_rows r
     WHERE r.segment = s.number AND r.kind = :kind AND r.key >= :key AND r.key < :end
"""
"""The row before a key, and all rows whose keys start with it; parts are in the order of keys."""

PARTS = """
    SELECT segment, part, value FROM search_rows
     WHERE kind = :kind AND key = :key AND (segment, part) {among}
"""
Pair = tuple[int, int]
"""A segment, and a part or an offset in it."""

_BATCH = 200


def find_terms(
    tx: Transaction, snapshot: Snapshot, stream: int, part: str, segments: Sequence[int]
) -> Mask:
    """The messages of some segments with a token that contains *part*."""
    found, text, kind = MaskBuilder(snapshot), utf8(part), STREAM * stream
    others = add_cached(tx, found, kind + Kind.CACHED, text, segments)
    _mark_referenced(tx, found, kind, _references(tx, kind, text, others))
    return found.mask()


def add_cached(
    tx: Transaction, found: MaskBuilder, kind: int, key: bytes, segments: Sequence[int]
) -> list[int]:
    """Add the cached messages of a key, and return the segments that have none."""
    among, params = any_of("segment", segments)
    rows = tx.all(CACHED_ROWS.format(among=among), **params, kind=kind, key=key)
    for segment, value in rows:
        found.add(segment, value)
    return sorted(set(segments) - {row[0] for row in rows})


def _references(
    tx: Transaction, kind: int, text: bytes, segments: Sequence[int]
) -> dict[int, set[int]]:
    """By segment, the references of the suffixes that start with the text."""
    if not segments:
        return {}
    each, params = each_of("segment", segments)
    key, suffix = text[:KEY_BYTES], kind + Kind.SUFFIX
    sql = SEGMENTS.format(each=each) + AT_KEY
    found: dict[int, set[int]] = {}
    for _, segment, _, value in tx.all(sql, **params, kind=suffix, key=key, end=key + b"\xff"):
        if value and (own := _references_in_row(value, text)):
            found.setdefault(segment, set()).update(own)
    return found


def _references_in_row(value: bytes, text: bytes) -> Sequence[int]:
    """The references in a row whose suffixes start with the text; they are neighbours."""
    end = 2 + int.from_bytes(value[:2], "big")
    start = b"\n" + text
    last = value.rfind(start, 2, end) + 1
    first = 2 if value.startswith(text, 2, end) else value.find(start, 2, end) + 1
    if not first:
        return ()
    low = value.count(b"\n", 2, first)
    high = value.count(b"\n", 2, max(first, last)) + 1
    return memoryview(value)[end + 4 * low : end + 4 * high].cast("I").tolist()


def _mark_referenced(
    tx: Transaction, found: MaskBuilder, kind: int, references: Mapping[int, Iterable[int]]
) -> None:
    """Add the messages that references point to."""
    terms: list[Pair] = []
    offsets: list[Pair] = []
    for segment, own in references.items():
        single = array("H")
        for reference in own:
            if reference >= SINGLE_DOC:
                single.append(reference - SINGLE_DOC)
            elif reference >= LARGE_POSTINGS:
                terms.append((segment, reference - LARGE_POSTINGS))
            else:
                offsets.append((segment, reference))
        found.add_doc_ids(segment, single.tobytes())
    for (segment, _), value in _read_parts(tx, kind + Kind.LARGE_POSTINGS, terms):
        found.add(segment, value)
    _mark_small(tx, found, kind, offsets)


def _mark_small(tx: Transaction, found: MaskBuilder, kind: int, offsets: Sequence[Pair]) -> None:
    """Add the messages at some offsets of the small postings."""
    parts = {
        (s, at // SHORTS_PER_ROW) for s, offset in offsets for at in (offset, offset + MAX_SMALL)
    }
    rows = dict(_read_parts(tx, kind + Kind.SMALL_POSTINGS, sorted(parts)))
    for segment, offset in offsets:
        part, start = divmod(offset, SHORTS_PER_ROW)
        row = rows[segment, part]
        size = int.from_bytes(row[2 * start : 2 * start + 2], "little")
        docs = row[2 * start + 2 : 2 * (start + size + 1)]
        if len(docs) < 2 * size:
            docs += rows[segment, part + 1][: 2 * size - len(docs)]
        found.add_doc_ids(segment, docs)


def _read_parts(tx: Transaction, kind: int, parts: Sequence[Pair]) -> Iterator[tuple[Pair, bytes]]:
    for first in range(0, len(parts), _BATCH):
        among, params = any_pair("part", padded(parts[first : first + _BATCH]))
        for segment, part, value in tx.all(PARTS.format(among=among), **params, kind=kind, key=b""):
            yield (segment, part), value
