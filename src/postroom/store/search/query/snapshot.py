"""A snapshot: all live segments as one search sees them, with dates and message numbers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from postroom.store.search.postings.masks import WORD, WORD_BITS, Mask, PrefixCounts, keep_range
from postroom.store.search.segments.segment import FORMATS, Format, Kind, Segment
from postroom.store.search.tokens.arrays import Int
from postroom.store.transaction import Transaction

_DOCS_PER_TICK = 128
"""A tick of the date index after this many messages of a segment."""

_TICKS_PER_SKIP = 64
_MIN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class DateIndex:
    """Dates (ticks) that divide all messages, with their positions in every segment."""

    def __init__(self, snapshot: Snapshot, doc_values: Sequence[DocValues]) -> None:
        inner = np.unique(np.concatenate([values.dates[::_DOCS_PER_TICK] for values in doc_values]))
        self.dates: Int = np.concatenate([[_MIN], inner, [_MAX]])
        positions = [values.dates.searchsorted(self.dates) for values in doc_values]
        self.positions: Int = np.array(positions)
        """By segment and tick, the first position in a mask that is not before the tick."""
        self.positions += snapshot.word_offsets[:-1, np.newaxis] * WORD_BITS
        last = len(self.dates) - 1
        self.skips: Int = np.append(np.arange(0, last, _TICKS_PER_SKIP), last)


class DateSkipList:
    """Counts the matches of a mask and the buffer that are not before a tick."""

    def __init__(self, date_index: DateIndex, counts: PrefixCounts, buffer: Int) -> None:
        self._date_index = date_index
        self._counts = counts
        self._buffer = buffer
        self._all = counts.before_segments + sum(counts.by_segment) + len(buffer)
        self._at_skips = self._not_before(date_index.skips)
        self._after_skip: dict[int, Int] = {}

    def first(self, limit: int) -> tuple[int, int]:
        """The first tick with at most *limit* matches from there on, and their number."""
        skip = int((-self._at_skips).searchsorted(-limit))
        if skip == 0:
            return 0, int(self._at_skips[0])
        start, stop = self._date_index.skips[skip - 1 : skip + 1].tolist()
        not_before = self._after_skip.get(skip)
        if not_before is None:
            not_before = self._after_skip[skip] = self._not_before(slice(start + 1, stop + 1))
        at = int((-not_before).searchsorted(-limit))
        return start + 1 + at, int(not_before[at])

    def _not_before(self, ticks: Int | slice) -> Int:
        below = self._counts.before(self._date_index.positions[:, ticks]).sum(axis=0)
        if len(self._buffer):
            below += self._buffer.searchsorted(self._date_index.dates[ticks])
        not_before: Int = self._all - below
        return not_before


_MAX_CACHED = 256
DOC_VALUES = """
    SELECT part, value FROM search_rows WHERE segment = :segment AND kind = :kind ORDER BY part
"""


@dataclass(frozen=True, slots=True)
class DocValues:
    """Dates and numbers of messages, by doc id of a segment or by position in a mask."""

    dates: Int
    numbers: Int


class DocValuesCache:
    """Caches doc values, which never change."""

    def __init__(self) -> None:
        self._doc_values: OrderedDict[tuple[int, int], DocValues] = OrderedDict()
        self._joined: tuple[Sequence[Segment], DocValues] | None = None
        self._date_index: tuple[Sequence[Segment], DateIndex] | None = None

    def of(self, tx: Transaction, segment: Segment) -> DocValues:
        """The doc values of one segment."""
        key = (segment.number, segment.size)
        values = self._doc_values.get(key)
        if values is None:
            rows = tx.all(DOC_VALUES, segment=segment.number, kind=Kind.DOC_VALUES)
            dates, numbers = (np.frombuffer(row[1], "<i8") for row in rows)
            values = self._doc_values[key] = DocValues(dates, numbers)
            while len(self._doc_values) > _MAX_CACHED:
                self._doc_values.popitem(last=False)
        return values

    def joined(self, tx: Transaction, snapshot: Snapshot) -> DocValues:
        """The doc values of all segments of a snapshot, by position in a mask."""
        joined = self._joined  # read once: another thread may replace it
        if joined is None or joined[0] != snapshot.segments:
            size = int(snapshot.word_offsets[-1]) * WORD_BITS
            joined_values = DocValues(np.zeros(size, np.int64), np.zeros(size, np.int64))
            for segment in snapshot.segments:
                own, first = self.of(tx, segment), snapshot.first_word(segment.number) * WORD_BITS
                joined_values.dates[first : first + segment.size] = own.dates
                joined_values.numbers[first : first + segment.size] = own.numbers
            joined = self._joined = snapshot.segments, joined_values
        return joined[1]

    def date_index(self, tx: Transaction, snapshot: Snapshot) -> DateIndex:
        date_index = self._date_index
        if date_index is None or date_index[0] != snapshot.segments:
            doc_values = [self.of(tx, segment) for segment in snapshot.segments]
            date_index = self._date_index = snapshot.segments, DateIndex(snapshot, doc_values)
        return date_index[1]


class Snapshot:
    """Segments side by side; each starts at a word of its own in a mask."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        words = [-(-segment.size // WORD_BITS) for segment in segments]
        offsets = list(accumulate(words, initial=0))
        self.word_offsets: Int = np.array(offsets)
        """The word at which each segment starts, and the end of the last one."""
        self._formats = {segment.number: FORMATS[segment.format] for segment in segments}
        lookaheads = {FORMATS[segment.format].lookahead for segment in segments}
        self._is_uniform = len(lookaheads) <= 1
        self._lookahead: list[int] = [min(own) for own in zip(*lookaheads, strict=True)]
        self._spans = {
            segment.number: slice(first, first + count)
            for segment, first, count in zip(segments, offsets, words, strict=False)
        }

    def __contains__(self, segment: int) -> bool:
        return segment in self._spans

    def by_lookahead(self, stream: int, numbers: Sequence[int], limit: int) -> dict[int, list[int]]:
        """Some segments by their lookahead in a stream, capped at *limit*."""
        if not numbers:
            return {}
        lookahead = self.min_lookahead(stream)
        if limit <= lookahead or self._is_uniform:
            return {min(lookahead, limit): list(numbers)}
        groups: dict[int, list[int]] = {}
        for number in numbers:
            own = min(self.format_of(number).lookahead[stream], limit)
            groups.setdefault(own, []).append(number)
        return groups

    def min_lookahead(self, stream: int) -> int:
        """The lookahead that every segment has in a stream."""
        return self._lookahead[stream]

    def format_of(self, segment: int) -> Format:
        return self._formats[segment]

    def first_word(self, segment: int) -> int:
        first: int = self._spans[segment].start
        return first

    def part(self, mask: Mask, segment: int) -> Mask:
        """The words of one segment in a mask."""
        return mask[self._spans[segment]]

    def none(self) -> Mask:
        return np.zeros(int(self.word_offsets[-1]), WORD)

    def all(self) -> Mask:
        mask = ~self.none()
        for segment in self.segments:
            keep_range(self.part(mask, segment.number), 0, segment.size)
        return mask

    def segments_in(self, mask: Mask) -> list[int]:
        """The segments with at least one message in the mask."""
        has_any = np.bitwise_or.reduceat(mask, self.word_offsets[:-1]).tolist()
        return [s.number for s, some in zip(self.segments, has_any, strict=True) if some]
