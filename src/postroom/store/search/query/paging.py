"""Paging: one page of the matches, in either order, at any depth."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from postroom.store.search.query.scan import Match, SearchQuery, SearchResult
from postroom.store.search.segments.segment import Kind, Segment
from postroom.store.search.segments.snapshot import (
    WORD_BITS,
    Mask,
    PrefixCounts,
    Snapshot,
    last_positions,
    positions_of,
    positions_within,
)
from postroom.store.search.tokens.arrays import Int, spans
from postroom.store.transaction import Transaction

_SHALLOW = 60
"""Up to this offset, a page is taken from the top."""

_SORT_ALL = 300
"""Up to this many matches are sorted at once."""

_DOCS_PER_DATE = 128
"""The date index has a date for this many messages of a segment."""

_DATES_PER_SKIP = 64
_MIN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class DateIndex:
    """Dates that divide all messages, with their positions in every segment."""

    def __init__(self, snapshot: Snapshot, doc_values: Sequence[DocValues]) -> None:
        inner = np.unique(np.concatenate([values.dates[::_DOCS_PER_DATE] for values in doc_values]))
        self.dates: Int = np.concatenate([[_MIN], inner, [_MAX]])
        positions = [values.dates.searchsorted(self.dates) for values in doc_values]
        self.positions: Int = np.array(positions)
        """By segment and date, the first position in a mask that is not before the date."""
        self.positions += snapshot.word_offsets[:-1, np.newaxis] * WORD_BITS
        last = len(self.dates) - 1
        self.skips: Int = np.append(np.arange(0, last, _DATES_PER_SKIP), last)


class DateSkipList:
    """Counts the matches of a mask and the buffer that are not before a date."""

    def __init__(self, date_index: DateIndex, counts: PrefixCounts, buffer: Int) -> None:
        self._date_index = date_index
        self._counts = counts
        self._buffer = buffer
        self._all = counts.before_segments + sum(counts.by_segment) + len(buffer)
        self._at_skips = self._not_before(date_index.skips)
        self._after_skip: dict[int, Int] = {}

    def first(self, limit: int) -> tuple[int, int]:
        """The first date with at most *limit* matches from there on, and their number."""
        skip = int((-self._at_skips).searchsorted(-limit))
        if skip == 0:
            return 0, int(self._at_skips[0])
        start, stop = self._date_index.skips[skip - 1 : skip + 1].tolist()
        not_before = self._after_skip.get(skip)
        if not_before is None:
            not_before = self._after_skip[skip] = self._not_before(slice(start + 1, stop + 1))
        at = int((-not_before).searchsorted(-limit))
        return start + 1 + at, int(not_before[at])

    def _not_before(self, places: Int | slice) -> Int:
        below = self._counts.before(self._date_index.positions[:, places]).sum(axis=0)
        if len(self._buffer):
            below += self._buffer.searchsorted(self._date_index.dates[places])
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


@dataclass
class Pager:
    """The matches in segments and buffer as one sorted list; those of the buffer are sorted."""

    tx: Transaction
    snapshot: Snapshot
    doc_values: DocValuesCache
    mask: Mask
    buffer: list[Match]

    @cached_property
    def total(self) -> int:
        return len(self.buffer) + int(np.bitwise_count(self.mask).sum())

    def page(self, query: SearchQuery) -> SearchResult:
        if query.oldest_first:
            return self._oldest_page(query)
        offset = query.offset
        if query.after is not None:
            offset = self._count_newer(query.after)
            found = self._newest(query.limit, query.after)
        else:
            found = self._newest_page(offset, query.limit)
        return SearchResult(tuple(number for _, number in found), self.total, offset)

    def _oldest_page(self, query: SearchQuery) -> SearchResult:
        """A page of the list that starts with the oldest: one from the end, turned around."""
        offset = query.offset
        if query.after is not None:
            date, number = query.after
            offset = self.total - self._count_newer((date, number + 1))
        end = max(0, self.total - offset)
        first = max(0, end - query.limit)
        found = self._newest_page(first, end - first)[::-1]
        return SearchResult(tuple(number for _, number in found), self.total, offset)

    def _newest_page(self, offset: int, limit: int) -> list[Match]:
        """A page by its offset, newest first."""
        if limit == 0 or offset >= self.total:
            return []
        if offset <= _SHALLOW or self.total <= _SORT_ALL:
            return self._newest(offset + limit, None)[offset:]
        return self._deep_page(offset, limit)

    @cached_property
    def _counts(self) -> PrefixCounts:
        return PrefixCounts(self.mask, self.snapshot.word_offsets)

    @cached_property
    def _segments_with_matches(self) -> list[tuple[Segment, int]]:
        """The segments with matches, and their number."""
        counts = zip(self.snapshot.segments, self._counts.by_segment, strict=True)
        return [(segment, count) for segment, count in counts if count]

    def _doc_before(self, segment: Segment, bound: Match | None) -> int:
        """The first doc id that is not before a bound."""
        if bound is None or segment.newest < bound[0]:
            return segment.size
        if segment.oldest > bound[0]:
            return 0
        values = self.doc_values.of(self.tx, segment)
        first = int(values.dates.searchsorted(bound[0]))
        if not bound[1]:
            return first
        last = int(values.dates.searchsorted(bound[0], side="right"))
        return first + int(values.numbers[first:last].searchsorted(bound[1]))

    def _deep_page(self, offset: int, limit: int) -> list[Match]:
        """A page at any offset: sort only the matches between two dates of the index."""
        date_index = self.doc_values.date_index(self.tx, self.snapshot)
        buffer = np.array([date for date, _ in self.buffer], np.int64)
        skip_list = DateSkipList(date_index, self._counts, buffer)
        newer, newer_count = skip_list.first(offset)
        older = max(0, skip_list.first(offset + limit - 1)[0] - 1)
        found = self._between(date_index, older, newer)
        end = len(found) - (offset - newer_count)
        return found[max(0, end - limit) : end][::-1]

    def _between(self, date_index: DateIndex, older: int, newer: int) -> list[Match]:
        """All matches from one date of the index to before another, oldest first."""
        since, before = int(date_index.dates[older]), int(date_index.dates[newer])
        first = date_index.positions[:, older] // WORD_BITS
        last = -(-date_index.positions[:, newer] // WORD_BITS)
        positions = positions_within(self.mask, spans(first, last - first))
        values = self.doc_values.joined(self.tx, self.snapshot)
        dates = values.dates[positions]
        positions = positions[(dates >= since) & (dates < before)]
        start, stop = bisect_left(self.buffer, (since, 0)), bisect_left(self.buffer, (before, 0))
        return self._in_order(positions, values, self.buffer[start:stop])

    def _count_newer(self, bound: Match) -> int:
        """How many matches are not before a bound."""
        newer_count = len(self.buffer) - bisect_left(self.buffer, bound)
        for segment, count in self._segments_with_matches:
            if segment.oldest > bound[0]:
                newer_count += count
            elif segment.newest >= bound[0]:
                first_word = self.snapshot.first_word(segment.number)
                older_count = self._counts.between(first_word, self._doc_before(segment, bound))
                newer_count += count - older_count
        return newer_count

    def _newest(self, count: int, bound: Match | None) -> list[Match]:
        """The newest matches before a bound, newest first."""
        if self.total <= _SORT_ALL:
            return self._all(bound)[-count:][::-1]
        end = len(self.buffer) if bound is None else bisect_left(self.buffer, bound)
        newest = self.buffer[max(0, end - count) : end]
        for segment, _ in self._segments_with_matches:
            first = 0
            if len(newest) >= count:
                if segment.newest < newest[0][0]:
                    continue
                first = self._doc_before(segment, (newest[0][0], 0))
            last = self._doc_before(segment, bound)
            if last <= first:
                continue
            part = self.snapshot.part(self.mask, segment.number)
            positions = last_positions(part, first, last, count)
            values = self.doc_values.of(self.tx, segment)
            newest = self._in_order(positions, values, newest)[-count:]
        return newest[::-1]

    def _all(self, bound: Match | None) -> list[Match]:
        values = self.doc_values.joined(self.tx, self.snapshot)
        found = self._in_order(positions_of(self.mask), values, self.buffer)
        return found if bound is None else found[: bisect_left(found, bound)]

    def _in_order(self, positions: Int, values: DocValues, others: list[Match]) -> list[Match]:
        """The matches at some positions and *others*, oldest first."""
        dates, numbers = values.dates[positions].tolist(), values.numbers[positions].tolist()
        return sorted([*others, *zip(dates, numbers, strict=True)])
