"""The door to the index: one page of the messages that are wanted, and their exact number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from postroom.store.search.scanning import SMALL, Small, most_to_scan, scan, size_up_to
from postroom.store.search.segments import Segment, live_segments
from postroom.store.search.wanted import Answer, Wanted
from postroom.store.transaction import Transaction, remembered

if TYPE_CHECKING:
    from postroom.store.search.indexed import Index

_MOST_LARGE = 1_000


class Finder:
    """Finds messages, and remembers what never changes of the segments it has seen.

    And which scopes were large: one that has shrunk is only searched in the slower way.
    """

    def __init__(self, small: Small = SMALL) -> None:
        self._small = small
        self._loaded: Index | None = None
        self._large: set[tuple[tuple[int, ...] | None, int]] = set()

    def find(self, tx: Transaction, wanted: Wanted) -> Answer:
        """Answer a question: small scopes from the messages, large ones from the index."""
        segments = remembered(tx, live_segments, lambda: live_segments(tx))
        if not segments or self._is_small(tx, wanted, segments):
            return scan(tx, wanted)
        return self._index().find(tx, wanted, segments)

    def _index(self) -> Index:
        if self._loaded is None:
            # numpy takes longer to load than a small store to be searched without it
            from postroom.store.search.indexed import Index

            self._loaded = Index()
        return self._loaded

    def _is_small(self, tx: Transaction, wanted: Wanted, segments: Sequence[Segment]) -> bool:
        """Whether the scope has so few messages that the index is of no use."""
        if wanted.thread is not None:
            return True
        most = self._small.at_most(len(segments))
        if (wanted.inboxes, most) in self._large:
            return False
        if wanted.inboxes is None:
            size = sum(segment.size for segment in segments)
        else:
            key = (size_up_to, wanted.inboxes, most)
            size = remembered(tx, key, lambda: size_up_to(tx, wanted, most + 1))
        if size <= most:
            return size <= most_to_scan(wanted, self._small, len(segments))
        if len(self._large) >= _MOST_LARGE:
            self._large.clear()
        self._large.add((wanted.inboxes, most))
        return False
