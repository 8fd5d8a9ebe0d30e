"""Building a segment from messages."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from postroom.model.mail.storage import FIELD_BORDER
from postroom.store.search.postings.boundary_writer import boundary_rows, ending_rows
from postroom.store.search.postings.term_postings import collect_postings, term_rows
from postroom.store.search.postings.token_pairs import find_endings
from postroom.store.search.segments import message_sets
from postroom.store.search.segments.messages import sets_of
from postroom.store.search.segments.segment import (
    CURRENT_FORMAT,
    FORMATS,
    STREAM,
    SUBJECT,
    BuiltSegment,
    Kind,
    SegmentRow,
    checksum_row,
    row_digest,
)
from postroom.store.search.segments.snapshot import encode_doc_ids
from postroom.store.search.tokens.arrays import Int
from postroom.store.search.tokens.tokenizer import TokenizedTexts, Tokenizer
from postroom.store.transaction import Row

_DOC_IDS_PER_ROW = 400


class SegmentBuilder:
    """Takes messages in any order and yields the rows and sets of their segment."""

    def __init__(self, format_number: int = CURRENT_FORMAT) -> None:
        self._numbers, self._dates = array("q"), array("q")
        self._format, form = format_number, FORMATS[format_number]
        self._streams = [Tokenizer(n, has_chunks=form.has_chunks) for n in form.lookahead]
        self.text_bytes = 0
        self._members: dict[str, list[int]] = {}
        self._truncated: dict[str, bytes] = {}

    def add(self, messages: Sequence[Row]) -> None:
        """Add messages as `read_messages` returns them."""
        self._numbers.extend(message[0] for message in messages)
        self._dates.extend(message[1] for message in messages)
        for stream, tokenizer in enumerate(self._streams):
            encoded = [_text_of(message, stream).encode() for message in messages]
            tokenizer.add(encoded)
            self.text_bytes += sum(map(len, encoded))
        for message in messages:
            for name in sets_of(message):
                self._members.setdefault(name, []).append(message[0])

    def built(self) -> BuiltSegment:
        numbers, dates = self._numbers or (0,), self._dates or (0,)
        size = len(self._numbers)
        bounds = min(numbers), max(numbers), min(dates), max(dates)
        return BuiltSegment(size, self.text_bytes, *bounds, self._format)

    def rows(self) -> Iterator[SegmentRow]:
        """All rows of the segment. No message can be added after them."""
        digests, has_checksum = 0, FORMATS[self._format].has_checksum
        for row in self._rows():
            digests += row_digest(row) if has_checksum else 0
            yield row
        if has_checksum:
            yield checksum_row(digests)

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
                name = message_sets.truncated_set(stream)
                self._truncated[name] = encode_doc_ids(text.truncated, len(order))
            for row in _stream_rows(text, len(order)):
                yield row._replace(kind=STREAM * stream + row.kind)
            text.close()

    def by_doc_id(self) -> list[int]:
        """The messages, in the order of their doc ids."""
        return [number for _, number in sorted(zip(self._dates, self._numbers, strict=True))]

    def sets(self) -> dict[str, bytes]:
        """All sets, encoded; call this after all rows are yielded."""
        doc_ids = {number: doc_id for doc_id, number in enumerate(self.by_doc_id())}
        return self._truncated | {
            name: encode_doc_ids(np.array(sorted(doc_ids[n] for n in members)), len(doc_ids))
            for name, members in sorted(self._members.items())
        }


def _text_of(message: Row, stream: int) -> str:
    """One text of a message as `read_messages` returns it."""
    if stream == SUBJECT:
        return str(message[2]).partition(FIELD_BORDER)[0]
    return str(message[2 + stream])


def _doc_id_rows(numbers: Int, doc_ids: Int) -> Iterator[SegmentRow]:
    """Doc ids by message number; read without numpy."""
    order = np.argsort(numbers)
    for first in range(0, len(order), _DOC_IDS_PER_ROW):
        chosen = order[first : first + _DOC_IDS_PER_ROW]
        own = numbers[chosen]
        value = own.astype("<i8").tobytes() + doc_ids[chosen].astype("<u2").tobytes()
        yield SegmentRow(Kind.DOC_IDS, int(own[0]).to_bytes(8, "big"), 0, value)


def _stream_rows(text: TokenizedTexts, size: int) -> Iterator[SegmentRow]:
    """The rows of one stream of text."""
    if not len(text.terms):
        return
    yield from term_rows(text.terms, collect_postings(text), size)
    endings = find_endings(text.terms)
    yield from ending_rows(endings)
    yield from boundary_rows(text, endings, size)
