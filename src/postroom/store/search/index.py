"""The way in to the search index: search it, keep it up to date, and compact it.

- `IndexSearcher.search` answers a `SearchQuery` inside a read transaction.
- `index_message`, `reindex_message`, `unindex_message`, `unindex_inbox` and `update_message_sets`
  run in the transaction that changes the message.
- `compact` does one piece of background work; `purge`, `rebuild` and `find_problems` belong to it.

All other modules of this package are private to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from postroom.model.view import Everything, Numbers
from postroom.store.search.compaction import jobs
from postroom.store.search.compaction.jobs import unindex_inbox
from postroom.store.search.compaction.merging import compact, purge
from postroom.store.search.query.scan import (
    DEFAULT_SCAN_LIMITS,
    ScanLimits,
    count_up_to,
    scan,
    scan_limit,
)
from postroom.store.search.query.search_query import SearchQuery, SearchResult
from postroom.store.search.segments import verification
from postroom.store.search.segments.message_sets import (
    SetChange,
    index_message,
    mutable_sets,
    reindex_message,
    unindex_message,
    update_message_sets,
)
from postroom.store.search.segments.segment import Segment, live_segments
from postroom.store.transaction import Engine, Transaction, remembered

if TYPE_CHECKING:
    from postroom.store.search.query.segment_search import SegmentSearcher

__all__ = (
    "IndexSearcher",
    "SearchQuery",
    "SearchResult",
    "SetChange",
    "compact",
    "find_problems",
    "index_message",
    "mutable_sets",
    "purge",
    "rebuild",
    "reindex_message",
    "unindex_inbox",
    "unindex_message",
    "update_message_sets",
)

_MAX_LARGE_SCOPES = 1_000


class IndexSearcher:
    """Searches the index, with caches of what never changes in segments.

    It also remembers which scopes are large; one that has shrunk is only searched more slowly.
    """

    def __init__(self, limits: ScanLimits = DEFAULT_SCAN_LIMITS) -> None:
        self._limits = limits
        self._loaded: SegmentSearcher | None = None
        self._large_scopes: set[tuple[Numbers, int]] = set()

    def search(self, tx: Transaction, query: SearchQuery) -> SearchResult:
        """Find one page of messages: scan a small scope, ask the segments about a large one."""
        segments = remembered(tx, live_segments, lambda: live_segments(tx))
        if not segments or self._is_small(tx, query, segments):
            return scan(tx, query)
        return self._segment_searcher().search(tx, query, segments)

    def _segment_searcher(self) -> SegmentSearcher:
        if self._loaded is None:
            # Importing numpy takes longer than searching a small store without it.
            from postroom.store.search.query.segment_search import SegmentSearcher

            self._loaded = SegmentSearcher()
        return self._loaded

    def _is_small(self, tx: Transaction, query: SearchQuery, segments: Sequence[Segment]) -> bool:
        if query.thread is not None:
            return True
        limit = self._limits.max_messages(len(segments))
        if (query.inboxes, limit) in self._large_scopes:
            return False
        if isinstance(query.inboxes, Everything):
            size = sum(segment.size for segment in segments)
        else:
            key = (count_up_to, query.inboxes, limit)
            size = remembered(tx, key, lambda: count_up_to(tx, query, limit + 1))
        if size <= limit:
            return size <= scan_limit(query, self._limits, len(segments))
        if len(self._large_scopes) >= _MAX_LARGE_SCOPES:
            self._large_scopes.clear()
        self._large_scopes.add((query.inboxes, limit))
        return False


async def find_problems(engine: Engine) -> tuple[str, ...]:
    """Compare the index with the messages; one sentence for each problem."""
    found = await engine.read(verification.check_membership)
    for segment in await engine.read(verification.live_segment_numbers):
        found += await engine.read(partial(verification.check_segment, segment=segment))
    return found


async def rebuild(engine: Engine) -> None:
    """Build the whole index again from the messages."""
    await engine.write(jobs.reset_index)
    while await compact(engine):
        pass
