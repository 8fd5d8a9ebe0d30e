"""Building a segment: from messages to rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from postroom.store.search.postings.boundary_rows import boundary_rows
from postroom.store.search.postings.masks import encode_doc_ids
from postroom.store.search.postings.term_postings import collect_postings, term_rows
from postroom.store.search.postings.token_pairs import ending_rows, find_endings
from postroom.store.search.segments.message_sets import truncated_set
from postroom.store.search.segments.segment import (
    CURRENT_FORMAT,
    FORMATS,
    STREAM,
    BuiltSegment,
    Kind,
    SegmentRow,
    with_checksum,
)
from postroom.store.search.tokens.arrays import Int
from postroom.store.search.tokens.tokenizer import TokenizedTexts, Tokenizer
from postroom.store.transaction import Row

_DOC_IDS_PER_ROW = 400


class SegmentBuilder:
    """Takes messages in any order and yields the rows of their segment."""

    def __init__(self, format_number: int = CURRENT_FORMAT) -> None:
        self._numbers, self._dates = array("q"), array("q")
        self._format, form = format_number, FORMATS[format_number]
        self._streams = [Tokenizer(n, has_chunks=form.has_chunks) for n in form.lookahead]
        self.text_bytes = 0
        self.sets: dict[str, bytes] = {}
        """Sets that follow from the texts, complete once all rows are yielded."""

    def add(self, messages: Sequence[Row]) -> None:
        """Add messages: number, date and the texts."""
        self._numbers.extend(message[0] for message in messages)
        self._dates.extend(message[1] for message in messages)
        columns = zip(*(message[2:] for message in messages), strict=True)
        for tokenizer, texts in zip(self._streams, columns, strict=True):
            encoded = [text.encode() for text in texts]
            tokenizer.add(encoded)
            self.text_bytes += sum(map(len, encoded))

    def doc_ids(self) -> dict[int, int]:
        """The doc id of each message: by date, then by number."""
        ordered = sorted(zip(self._dates, self._numbers, strict=True))
        return {number: doc_id for doc_id, (_, number) in enumerate(ordered)}

    def encode_members(self, doc_ids: Sequence[int]) -> bytes:
        return encode_doc_ids(np.sort(np.array(doc_ids, np.uint16)), len(self._numbers))

    def built(self) -> BuiltSegment:
        numbers, dates = self._numbers or (0,), self._dates or (0,)
        size = len(self._numbers)
        bounds = min(numbers), max(numbers), min(dates), max(dates)
        return BuiltSegment(size, self.text_bytes, *bounds, self._format)

    def rows(self) -> Iterator[SegmentRow]:
        """All rows of the segment. The builder cannot be used again."""
        rows = self._rows()
        return with_checksum(rows) if FORMATS[self._format].has_checksum else rows

    def _rows(self) -> Iterator[SegmentRow]:
        dates, numbers = np.array(self._dates, "<i8"), np.array(self._numbers, "<i8")
        order = np.lexsort((numbers, dates))
        doc_ids = np.empty(len(order), np.int64)
        doc_ids[order] = np.arange(len(order))
        yield SegmentRow(Kind.DOC_VALUES, b"", 0, dates[order].tobytes())
        yield SegmentRow(Kind.DOC_VALUES, b"", 1, numbers[order].tobytes())
        yield from _doc_id_rows(numbers, doc_ids)
        streams, self._streams = self._streams, []
        for stream, tokenizer in enumerate(streams):
            text = tokenizer.finish(doc_ids)
            if len(text.truncated):
                truncated = encode_doc_ids(text.truncated.astype(np.uint16), len(order))
                self.sets[truncated_set(stream)] = truncated
            for row in stream_rows(text, len(order)):
                yield row._replace(kind=STREAM * stream + row.kind)
            text.close()


def _doc_id_rows(numbers: Int, doc_ids: Int) -> Iterator[SegmentRow]:
    """Doc ids by message number; read without numpy."""
    order = np.argsort(numbers)
    for first in range(0, len(order), _DOC_IDS_PER_ROW):
        chosen = order[first : first + _DOC_IDS_PER_ROW]
        own = numbers[chosen]
        value = own.astype("<i8").tobytes() + doc_ids[chosen].astype("<u2").tobytes()
        yield SegmentRow(Kind.DOC_IDS, int(own[0]).to_bytes(8, "big"), 0, value)


def stream_rows(text: TokenizedTexts, size: int) -> Iterator[SegmentRow]:
    """The rows of one stream of text."""
    if not len(text.terms):
        return
    yield from term_rows(text.terms, collect_postings(text), size)
    endings = find_endings(text.terms)
    yield from ending_rows(text.terms, endings)
    yield from boundary_rows(text, endings, size)
