"""Paging: one page of the matches, newest first, at any depth."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

import numpy as np

from postroom.store.search.postings.masks import (
    WORD_BITS,
    Mask,
    PrefixCounts,
    last_positions,
    positions_of,
    positions_within,
)
from postroom.store.search.query.search_query import Match, SearchQuery, SearchResult
from postroom.store.search.query.snapshot import (
    DateIndex,
    DateSkipList,
    DocValues,
    DocValuesCache,
    Snapshot,
)
from postroom.store.search.segments.segment import Segment
from postroom.store.search.tokens.arrays import Int, spans
from postroom.store.transaction import Transaction

_SHALLOW = 60
"""Up to this offset, a page is taken from the top."""

_SORT_ALL = 300
"""Up to this many matches are sorted at once."""


class Pager:
    """The matches in segments and buffer as one sorted list."""

    def __init__(
        self,
        tx: Transaction,
        snapshot: Snapshot,
        doc_values: DocValuesCache,
        mask: Mask,
        buffer: list[Match],
    ) -> None:
        self._tx = tx
        self._doc_values = doc_values
        self._buffer = buffer[::-1]
        self._snapshot = snapshot
        self._mask = mask
        self.total = len(buffer) + int(np.bitwise_count(mask).sum())

    def page(self, query: SearchQuery) -> SearchResult:
        offset, found = query.offset, list[Match]()
        if query.after is not None:
            offset = self._count_newer(query.after)
            found = self._newest(query.limit, query.after)
        elif offset < self.total and (offset <= _SHALLOW or self.total <= _SORT_ALL):
            found = self._newest(offset + query.limit, None)[offset:]
        elif offset < self.total:
            found = self._deep_page(offset, query.limit)
        return SearchResult(tuple(number for _, number in found), self.total, offset)

    @cached_property
    def _counts(self) -> PrefixCounts:
        return PrefixCounts(self._mask, self._snapshot.word_offsets)

    @cached_property
    def _segments_with_matches(self) -> list[tuple[Segment, int]]:
        """The segments with matches, and their number."""
        counts = zip(self._snapshot.segments, self._counts.by_segment, strict=True)
        return [(segment, count) for segment, count in counts if count]

    def _doc_before(self, segment: Segment, bound: Match | None) -> int:
        """The first doc id that is not before a bound."""
        if bound is None or segment.newest < bound[0]:
            return segment.size
        if segment.oldest > bound[0]:
            return 0
        values = self._doc_values.of(self._tx, segment)
        first = int(values.dates.searchsorted(bound[0]))
        if not bound[1]:
            return first
        last = int(values.dates.searchsorted(bound[0], side="right"))
        return first + int(values.numbers[first:last].searchsorted(bound[1]))

    def _deep_page(self, offset: int, limit: int) -> list[Match]:
        """A page at any offset: sort only the matches between two ticks around it."""
        date_index = self._doc_values.date_index(self._tx, self._snapshot)
        buffer = np.array([date for date, _ in self._buffer], np.int64)
        skip_list = DateSkipList(date_index, self._counts, buffer)
        newer, newer_count = skip_list.first(offset)
        older = max(0, skip_list.first(offset + limit - 1)[0] - 1)
        found = self._between(date_index, older, newer)
        end = len(found) - (offset - newer_count)
        return found[max(0, end - limit) : end][::-1]

    def _between(self, date_index: DateIndex, older: int, newer: int) -> list[Match]:
        """All matches from one tick to before another, oldest first."""
        since, before = int(date_index.dates[older]), int(date_index.dates[newer])
        first = date_index.positions[:, older] // WORD_BITS
        last = -(-date_index.positions[:, newer] // WORD_BITS)
        positions = positions_within(self._mask, spans(first, last - first))
        values = self._doc_values.joined(self._tx, self._snapshot)
        dates = values.dates[positions]
        positions = positions[(dates >= since) & (dates < before)]
        start, stop = bisect_left(self._buffer, (since, 0)), bisect_left(self._buffer, (before, 0))
        return self._in_order(positions, values, self._buffer[start:stop])

    def _count_newer(self, bound: Match) -> int:
        """How many matches are not before a bound."""
        newer_count = len(self._buffer) - bisect_left(self._buffer, bound)
        for segment, count in self._segments_with_matches:
            if segment.oldest > bound[0]:
                newer_count += count
            elif segment.newest >= bound[0]:
                first_word = self._snapshot.first_word(segment.number)
                older_count = self._counts.between(first_word, self._doc_before(segment, bound))
                newer_count += count - older_count
        return newer_count

    def _newest(self, count: int, bound: Match | None) -> list[Match]:
        """The newest matches before a bound, newest first."""
        if self.total <= _SORT_ALL:
            return self._all(bound)[-count:][::-1]
        end = len(self._buffer) if bound is None else bisect_left(self._buffer, bound)
        newest = self._buffer[max(0, end - count) : end]
        for segment, _ in self._segments_with_matches:
            first = 0
            if len(newest) >= count:
                if segment.newest < newest[0][0]:
                    continue
                first = self._doc_before(segment, (newest[0][0], 0))
            last = self._doc_before(segment, bound)
            if last <= first:
                continue
            part = self._snapshot.part(self._mask, segment.number)
            positions = last_positions(part, first, last, count)
            values = self._doc_values.of(self._tx, segment)
            newest = self._in_order(positions, values, newest)[-count:]
        return newest[::-1]

    def _all(self, bound: Match | None) -> list[Match]:
        values = self._doc_values.joined(self._tx, self._snapshot)
        found = self._in_order(positions_of(self._mask), values, self._buffer)
        return found if bound is None else found[: bisect_left(found, bound)]

    def _in_order(self, positions: Int, values: DocValues, others: list[Match]) -> list[Match]:
        """The matches at some positions and *others*, oldest first."""
        dates, numbers = values.dates[positions].tolist(), values.numbers[positions].tolist()
        return sorted([*others, *zip(dates, numbers, strict=True)])
