"""Searching the segments: which messages of a snapshot match, as a mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from postroom.model.view import Everything, Numbers
from postroom.store.search.postings.boundary_postings import find_boundary_postings
from postroom.store.search.postings.term_postings import find_terms
from postroom.store.search.query.buffer import Buffer
from postroom.store.search.query.paging import DocValuesCache, Pager
from postroom.store.search.query.scan import (
    EVERYWHERE,
    Counts,
    MailboxKey,
    SearchQuery,
    SearchResult,
)
from postroom.store.search.segments import message_sets
from postroom.store.search.segments.segment import (
    COLUMNS,
    MAX_WHOLE_BYTES,
    SEARCHABLE,
    SUBJECT,
    Segment,
)
from postroom.store.search.segments.snapshot import (
    Mask,
    MaskBuilder,
    SetCounter,
    Snapshot,
    keep_range,
    positions_of,
    set_bits,
)
from postroom.store.search.tokens.boundaries import has_longer_token, later_windows, split_query
from postroom.store.sql.statements import CONTAINS, any_of, is_storable, padded, pattern, within
from postroom.store.transaction import Row, Transaction, remembered

SETS = "SELECT name, segment, value FROM search_sets WHERE name {among}"
TEXTS = """
    SELECT message FROM search_texts
     WHERE {within} AND message {among} AND {column} {contains}
"""
_BATCH = 200
_DENSE_RATIO = 1.5
"""Up to this ratio, a range of message numbers is read instead of a list."""

_FEW_CANDIDATES = 100
"""Reading this many texts is faster than another lookup of postings."""


@dataclass(slots=True)
class _SetNames:
    """A message must be in one of the inboxes, in all of `all_of`, and in none of `none_of`."""

    inboxes: list[str] | None
    """None is every inbox."""
    all_of: list[str] = field(default_factory=list)
    none_of: list[str] = field(default_factory=lambda: [message_sets.REMOVED])


@dataclass
class IndexSearch:
    """One query on a snapshot."""

    tx: Transaction
    query: SearchQuery
    snapshot: Snapshot
    doc_values: DocValuesCache

    def mask(self) -> Mask:
        """The messages that match."""
        query = self.query
        scope = (
            *(IndexSearch, query.inboxes, query.labels, query.mailbox, query.has_attachment),
            *(query.flags, query.without_flags),
        )
        mask, segments = remembered(self.tx, scope, self._scope)
        if query.since is not None or query.before is not None:
            mask = self._within_dates(mask)
            segments = self.snapshot.segments_in(mask)
        for number, (stream, text) in enumerate(query.texts()):
            if number:
                segments = self.snapshot.segments_in(mask)
            mask = mask & self._with_text(stream, text, mask, segments)
        return mask

    def _scope(self) -> tuple[Mask, list[int]]:
        """The messages that match all but texts and dates, and their segments."""
        inboxes = self._names.inboxes
        mask = self.snapshot.all() if inboxes is None else self._union(inboxes)
        for name in self._names.all_of:
            mask &= self._union([name])
        for name in self._names.none_of:
            if name in self._sets:
                mask &= ~self._union([name])
        return mask, self.snapshot.segments_in(mask)

    @cached_property
    def _names(self) -> _SetNames:
        query = self.query
        names = _SetNames(None)
        if not isinstance(query.inboxes, Everything):
            names.inboxes = [message_sets.inbox_set(inbox) for inbox in query.inboxes.named]
        names.all_of += [message_sets.label_set(label) for label in query.labels]
        names.all_of += [message_sets.flag_set(flag) for flag in query.flags]
        names.none_of += [message_sets.flag_set(flag) for flag in query.without_flags]
        if query.mailbox is None:
            names.none_of.append(message_sets.HIDDEN)
        elif query.mailbox != EVERYWHERE:
            names.all_of.append(message_sets.mailbox_set(query.mailbox))
        if query.has_attachment is not None:
            chosen = names.all_of if query.has_attachment else names.none_of
            chosen.append(message_sets.HAS_ATTACHMENT)
        return names

    @cached_property
    def _sets(self) -> dict[str, list[tuple[int, bytes]]]:
        """All sets that the query needs, read with as few statements as possible."""
        streams = {stream for stream, _ in self.query.texts()}
        if SUBJECT in streams:
            streams.add(SEARCHABLE)
        truncated = [message_sets.truncated_set(stream) for stream in sorted(streams)]
        own = self._names
        names = list(dict.fromkeys([*(own.inboxes or ()), *own.all_of, *own.none_of, *truncated]))
        sets: dict[str, list[tuple[int, bytes]]] = {}
        for name, segment, value in _read_sets(self.tx, names):
            sets.setdefault(name, []).append((segment, value))
        return sets

    def _union(self, names: Sequence[str]) -> Mask:
        union = MaskBuilder(self.snapshot)
        for name in names:
            for segment, value in self._sets.get(name, ()):
                union.add(segment, value)
        return union.mask()

    def _within_dates(self, scope: Mask) -> Mask:
        """Remove messages outside the dates; only segments that cross a bound are read."""
        since, before = self.query.since, self.query.before
        mask = scope.copy()
        for segment in self.snapshot.segments:
            first, last = 0, segment.size
            if since is not None and segment.oldest < since:
                first = int(self.doc_values.of(self.tx, segment).dates.searchsorted(since))
            if before is not None and segment.newest >= before:
                last = int(self.doc_values.of(self.tx, segment).dates.searchsorted(before))
            if (first, last) != (0, segment.size):
                keep_range(self.snapshot.part(mask, segment.number), first, last)
        return mask

    def _with_text(self, stream: int, text: str, scope: Mask, segments: Sequence[int]) -> Mask:
        """A superset of the messages of the scope that contain a text; exact within the scope."""
        if not segments:
            return self.snapshot.none()
        if stream == SUBJECT:
            indexed = [n for n in segments if self.snapshot.has_stream(SUBJECT, n)]
            if len(indexed) < len(segments):
                return self._with_subject(text, scope, segments, indexed)
        first, rest = split_query(text)
        truncated = self._truncated(stream, text)
        candidates = None if truncated is None else truncated & scope
        if rest:
            found, others = find_boundary_postings(
                self.tx, self.snapshot, stream, first, rest, segments
            )
            matches = found.mask()
            if others:
                unverified = self._narrow(stream, rest, others.mask() & scope & ~matches)
                candidates = unverified if candidates is None else candidates | unverified
        else:
            matches = find_terms(self.tx, self.snapshot, stream, first, segments)
        if truncated is not None:
            matches &= ~truncated
        if candidates is not None and candidates.any():
            matches |= self._verify(stream, text, candidates)
        return matches

    def _with_subject(
        self, text: str, scope: Mask, segments: Sequence[int], indexed: Sequence[int]
    ) -> Mask:
        """The messages whose subject contains a text, if some segments have no such stream.

        There, those with the text in any field are verified.
        """
        others = [n for n in segments if n not in indexed]
        candidates = self._with_text(SEARCHABLE, text, scope, others) & scope
        for number in indexed:
            self.snapshot.part(candidates, number)[:] = 0
        found = self._verify(SUBJECT, text, candidates)
        return found | self._with_text(SUBJECT, text, scope, indexed)

    def _truncated(self, stream: int, text: str) -> Mask | None:
        """The messages with a token that is not indexed whole, if that matters for this text."""
        is_long, name = has_longer_token(text, MAX_WHOLE_BYTES), message_sets.truncated_set(stream)

        def union() -> Mask | None:
            truncated = MaskBuilder(self.snapshot)
            for segment, value in self._sets.get(name, ()):
                if segment in self.snapshot and (
                    is_long or not self.snapshot.format_of(segment).has_chunks
                ):
                    truncated.add(segment, value)
            return truncated.mask() if truncated else None

        return remembered(self.tx, (IndexSearch, name, is_long), union)

    def _narrow(self, stream: int, rest: str, candidates: Mask) -> Mask:
        """The candidates that also contain the later tokens of a long text."""
        for first, window in later_windows(rest, self.snapshot.min_lookahead(stream)):
            if np.bitwise_count(candidates).sum() <= _FEW_CANDIDATES:
                break
            segments = self.snapshot.segments_in(candidates)
            found, others = find_boundary_postings(
                self.tx, self.snapshot, stream, first, window, segments
            )
            candidates &= found.mask() | others.mask()
        return candidates

    def _verify(self, stream: int, text: str, candidates: Mask) -> Mask:
        """The candidates whose text contains the query."""
        positions = positions_of(candidates)
        numbers = self.doc_values.joined(self.tx, self.snapshot).numbers[positions].tolist()
        containing = set(self._containing(stream, text, sorted(numbers)))
        verified = self.snapshot.none()
        set_bits(verified, positions[[number in containing for number in numbers]])
        return verified

    def _containing(self, stream: int, text: str, numbers: Sequence[int]) -> list[int]:
        """Message numbers whose text contains the query; may include others between them."""
        found = list[int]()
        column, contains = COLUMNS[stream], CONTAINS.format(name="text")
        where, scope = within("inbox", self.query.inboxes)
        for first in range(0, len(numbers) if is_storable(text) else 0, _BATCH):
            among, params = _among(numbers[first : first + _BATCH])
            sql = TEXTS.format(within=where, column=column, among=among, contains=contains)
            rows = self.tx.all(sql, **params, **scope, text=pattern(text))
            found += (row[0] for row in rows)
        return found


def _among(numbers: Sequence[int]) -> tuple[str, dict[str, object]]:
    """A condition for sorted message numbers; a range if they are dense."""
    first, last = numbers[0], numbers[-1]
    if last - first < _DENSE_RATIO * len(numbers):
        return "BETWEEN :first AND :last", {"first": first, "last": last}
    return any_of("message", padded(numbers))


class SegmentSearcher:
    """Searches segments and buffer, with caches of what never changes."""

    def __init__(self) -> None:
        self._doc_values = DocValuesCache()
        self._buffer = Buffer()

    def search(self, tx: Transaction, query: SearchQuery, segments: list[Segment]) -> SearchResult:
        """One page of the matches in segments and buffer."""
        snapshot = remembered(tx, Snapshot, lambda: Snapshot(segments))
        mask = IndexSearch(tx, query, snapshot, self._doc_values).mask()
        buffered = self._buffer.matches(tx, query)[::-1]
        return Pager(tx, snapshot, self._doc_values, mask, buffered).page(query)

    def count_mailboxes(
        self, tx: Transaction, keys: Sequence[MailboxKey], segments: list[Segment]
    ) -> dict[MailboxKey, Counts]:
        """Count the messages of some mailboxes that are in segments."""
        snapshot = remembered(tx, Snapshot, lambda: Snapshot(segments))
        inboxes = {inbox: message_sets.inbox_set(inbox) for inbox, _ in keys}
        mailboxes = {name: message_sets.mailbox_set(name) for _, name in keys}
        seen, removed = message_sets.flag_set("seen"), message_sets.REMOVED
        masks = _read_masks(tx, snapshot, [*inboxes.values(), *mailboxes.values(), seen, removed])
        counts: dict[MailboxKey, Counts] = {}
        for inbox, name in keys:
            mask = masks[inboxes[inbox]] & masks[mailboxes[name]] & ~masks[removed]
            counts[inbox, name] = (
                int(np.bitwise_count(mask).sum()),
                int(np.bitwise_count(mask & ~masks[seen]).sum()),
            )
        return counts

    def count_labels(
        self,
        tx: Transaction,
        inboxes: Numbers,
        names: Sequence[str],
        segments: list[Segment],
    ) -> dict[str, Counts]:
        """Count the messages in segments that have some labels and are not hidden."""
        snapshot = remembered(tx, Snapshot, lambda: Snapshot(segments))
        everyone = SearchQuery(inboxes=inboxes)
        scope = IndexSearch(tx, everyone, snapshot, self._doc_values).mask()
        seen = message_sets.flag_set("seen")
        unread = scope & ~_read_masks(tx, snapshot, [seen])[seen]
        numbers = {message_sets.label_set(name): number for number, name in enumerate(names)}
        counter = SetCounter(snapshot, (scope, unread), len(names))
        for name, segment, value in _read_sets(tx, list(numbers)):
            counter.add(numbers[name], segment, value)
        return dict(zip(names, zip(*counter.counts(), strict=True), strict=True))


def _read_sets(tx: Transaction, names: Sequence[str]) -> Iterator[Row]:
    for first in range(0, len(names), _BATCH):
        among, params = any_of("name", names[first : first + _BATCH])
        yield from tx.all(SETS.format(among=among), **params)


def _read_masks(tx: Transaction, snapshot: Snapshot, names: Sequence[str]) -> dict[str, Mask]:
    """The messages in each of some sets."""
    builders = {name: MaskBuilder(snapshot) for name in names}
    for name, segment, value in _read_sets(tx, names):
        builders[name].add(segment, value)
    return {name: builder.mask() for name, builder in builders.items()}
