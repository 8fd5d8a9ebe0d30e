"""A segment is made from messages: all its rows, one after the other."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from postroom.store.search.arrays import Int
from postroom.store.search.digest import with_digest
from postroom.store.search.endings import ending_rows, find_endings
from postroom.store.search.formats import FORMATS, NEWEST
from postroom.store.search.jobs import Made
from postroom.store.search.junction_rows import junction_rows
from postroom.store.search.kinds import STREAM, Kind, SegmentRow
from postroom.store.search.rows import encode_places
from postroom.store.search.sets import cut_set
from postroom.store.search.tokens import Tokenised, Tokeniser
from postroom.store.search.word_rows import find_postings, word_rows
from postroom.store.transaction import Row

LARGEST = 1 << 16
"""A place fits into two bytes."""

_PLACES_PER_ROW = 400


class SegmentBuilder:
    """Takes messages with their texts in any order, and makes the rows of their segment."""

    def __init__(self, format_number: int = NEWEST) -> None:
        self._numbers, self._dates = array("q"), array("q")
        self._format, form = format_number, FORMATS[format_number]
        self._streams = [Tokeniser(n, has_pieces=form.has_pieces) for n in form.ahead]
        self.text_bytes = 0
        self.sets: dict[str, bytes] = {}
        """Sets that come out of the texts, once all rows are made."""

    def add(self, messages: Sequence[Row]) -> None:
        """Take some messages: number, date, and the texts."""
        self._numbers.extend(message[0] for message in messages)
        self._dates.extend(message[1] for message in messages)
        columns = zip(*(message[2:] for message in messages), strict=True)
        for tokeniser, texts in zip(self._streams, columns, strict=True):
            encoded = [text.encode() for text in texts]
            tokeniser.add(encoded)
            self.text_bytes += sum(map(len, encoded))

    def places(self) -> dict[int, int]:
        """Where each message will be: from the oldest to the newest, then by number."""
        ordered = sorted(zip(self._dates, self._numbers, strict=True))
        return {number: place for place, (_, number) in enumerate(ordered)}

    def encoded(self, places: Sequence[int]) -> bytes:
        """A set of messages, by their places."""
        return encode_places(np.sort(np.array(places, np.uint16)), len(self._numbers))

    def made(self) -> Made:
        """What is to be said of the segment."""
        numbers, dates = self._numbers or (0,), self._dates or (0,)
        size = len(self._numbers)
        bounds = min(numbers), max(numbers), min(dates), max(dates)
        return Made(size, self.text_bytes, *bounds, self._format)

    def rows(self) -> Iterator[SegmentRow]:
        """All rows of the segment. The builder is used up."""
        rows = self._rows()
        return with_digest(rows) if FORMATS[self._format].has_digest else rows

    def _rows(self) -> Iterator[SegmentRow]:
        dates, numbers = np.array(self._dates, "<i8"), np.array(self._numbers, "<i8")
        order = np.lexsort((numbers, dates))
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        yield SegmentRow(Kind.ORDER, b"", 0, dates[order].tobytes())
        yield SegmentRow(Kind.ORDER, b"", 1, numbers[order].tobytes())
        yield from _place_rows(numbers, places)
        streams, self._streams = self._streams, []
        for stream, tokeniser in enumerate(streams):
            text = tokeniser.finish(places)
            if len(text.cut):
                cut = encode_places(text.cut.astype(np.uint16), len(order))
                self.sets[cut_set(stream)] = cut
            for row in stream_rows(text, len(order)):
                yield row._replace(kind=STREAM * stream + row.kind)
            text.close()


def _place_rows(numbers: Int, places: Int) -> Iterator[SegmentRow]:
    """Where each message is, by number; read without numpy."""
    order = np.argsort(numbers)
    for first in range(0, len(order), _PLACES_PER_ROW):
        chosen = order[first : first + _PLACES_PER_ROW]
        own = numbers[chosen]
        value = own.astype("<i8").tobytes() + places[chosen].astype("<u2").tobytes()
        yield SegmentRow(Kind.PLACE, int(own[0]).to_bytes(8, "big"), 0, value)


def stream_rows(text: Tokenised, size: int) -> Iterator[SegmentRow]:
    """The rows about one text of the messages of a segment."""
    if not len(text.terms):
        return
    yield from word_rows(text.terms, find_postings(text), size)
    endings = find_endings(text.terms)
    yield from ending_rows(text.terms, endings)
    yield from junction_rows(text, endings, size)
