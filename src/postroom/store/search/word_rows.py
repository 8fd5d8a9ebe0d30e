"""Which messages have a token that contains a string: the rows that tell, and how they are made.

All suffixes of all terms are kept in order, so the terms that contain a string are neighbours.
Where they are many, the set of their messages is kept ready.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from postroom.store.search.arrays import U16, U32, is_first, spans
from postroom.store.search.kinds import Kind, SegmentRow
from postroom.store.search.ready import Postings, Ready
from postroom.store.search.rows import encode_places
from postroom.store.search.spill import Spill
from postroom.store.search.suffixes import Suffixes, sorted_suffixes
from postroom.store.search.tokens import Stretch, Tokenised
from postroom.store.search.vocabulary import Vocabulary

PER_ROW = 128
KEY_BYTES = 16

ALONE, LARGE = 1 << 31, 1 << 30
"""A reference with the first is the one message that has the term; with the second it is the
term itself, whose messages have a row of their own. Any other is a place among those of terms
with few messages, which lie end to end, each set after its size."""

FEW = 128
SHORTS_PER_ROW = 2_000
"""Two bytes each: they fit on one page."""


def find_postings(text: Tokenised) -> Postings:
    """Which messages have which terms; those of a term in the order of their texts."""
    counts = np.zeros(len(text.terms), np.int64)
    with Spill() as spill:
        parts = []
        for stretch in text.stretches():
            terms, docs = _pairs(stretch, text.gap)
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


def _pairs(stretch: Stretch, gap: int) -> tuple[U32, U16]:
    """Each term of a part of the sequence with each message that has it, by term."""
    is_token = stretch.sequence != 0
    pairs = (stretch.sequence[is_token] & np.uint32(gap - 1)).astype(np.uint64)
    pairs <<= np.uint64(16)
    pairs |= stretch.docs[is_token]
    pairs.sort()
    pairs = pairs[is_first(pairs)]
    return (pairs >> np.uint64(16)).astype(np.uint32) - np.uint32(1), pairs.astype(np.uint16)


def word_rows(terms: Vocabulary, postings: Postings, count: int) -> Iterator[SegmentRow]:
    """All rows about words of a segment that holds *count* messages."""
    references, shorts = _lay_out(postings)
    for part, first in enumerate(range(0, len(shorts), SHORTS_PER_ROW)):
        value = shorts[first : first + SHORTS_PER_ROW].tobytes()
        yield SegmentRow(Kind.POSTING, b"", part, value)
    for term in np.flatnonzero(postings.counts > FEW).tolist():
        yield SegmentRow(Kind.LARGE, b"", term, encode_places(postings.of(term), count))
    yield from _suffix_rows(terms, references, ready := Ready(postings, count))
    yield from ready.finish()


def _lay_out(postings: Postings) -> tuple[U32, U16]:
    """What each term refers to, and the messages of terms that have few, end to end."""
    references = np.arange(len(postings.counts), dtype=np.uint32) | np.uint32(LARGE)
    alone = postings.counts == 1
    references[alone] = postings.docs[postings.starts[alone]] | np.uint32(ALONE)
    few = np.flatnonzero(~alone & (postings.counts <= FEW))
    counts = postings.counts[few]
    ends = np.cumsum(counts + 1)
    places = ends - counts - 1
    references[few] = places
    shorts = np.empty(int(ends[-1]) if len(ends) else 0, "<u2")
    shorts[places] = counts
    shorts[spans(places + 1, counts)] = postings.docs[spans(postings.starts[few], counts)]
    return references, shorts


def _suffix_rows(terms: Vocabulary, by_term: U32, ready: Ready) -> Iterator[SegmentRow]:
    part = 0
    for suffixes in sorted_suffixes(terms):
        for row in _rows(suffixes, by_term):
            yield row._replace(part=part)
            part += 1
        yield from ready.take(suffixes)


def _rows(suffixes: Suffixes, by_term: U32) -> Iterator[SegmentRow]:
    references = by_term[suffixes.terms].astype("<u4").tobytes()
    lengths = suffixes.lengths.astype(np.int64) + 1
    texts = suffixes.flat[spans(suffixes.starts.astype(np.int64), lengths)].tobytes()
    ends = [0, *np.cumsum(lengths).tolist()]
    for start in range(0, len(lengths), PER_ROW):
        stop = min(start + PER_ROW, len(lengths))
        names = texts[ends[start] : ends[stop] - 1]
        key = texts[ends[start] : min(ends[start + 1] - 1, ends[start] + KEY_BYTES)]
        value = len(names).to_bytes(2, "big") + names + references[4 * start : 4 * stop]
        yield SegmentRow(Kind.SUFFIX, key, 0, value)
