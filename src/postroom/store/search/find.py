"""The door to the index: one page of the messages that are wanted, and their exact number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from postroom.store.search.scanning import (
    SMALL,
    Small,
    is_small,
    most_to_scan,
    scan,
    scan_tail,
)
from postroom.store.search.segments import Segment, live_segments
from postroom.store.search.wanted import Answer, Wanted
from postroom.store.transaction import Transaction, remembered

if TYPE_CHECKING:
    from postroom.store.search.shelf import Orders


_MOST_LARGE = 1_000


class Finder:
    """Finds messages, and remembers what never changes of the segments it has seen.

    And which scopes were large: one that has shrunk is only searched in the slower way.
    """

    def __init__(self, small: Small = SMALL) -> None:
        self._small = small
        self._orders: Orders | None = None
        self._large: set[tuple[tuple[int, ...], int]] = set()

    def find(self, tx: Transaction, wanted: Wanted) -> Answer:
        """Answer a question: small scopes from the messages, large ones from the index."""
        segments = remembered(tx, live_segments, lambda: live_segments(tx))
        if not segments or self._is_small(tx, wanted, segments):
            return scan(tx, wanted)
        # numpy takes longer to load than a small store to be searched without it
        from postroom.store.search.lookup import Lookup
        from postroom.store.search.paging import Pager
        from postroom.store.search.shelf import Orders, Shelf

        orders = self._orders = self._orders or Orders()
        shelf = remembered(tx, Shelf, lambda: Shelf(segments))
        mask = Lookup(tx, wanted, shelf, orders).mask()
        return Pager(tx, shelf, orders, mask, scan_tail(tx, wanted)).page(wanted)

    def _is_small(self, tx: Transaction, wanted: Wanted, segments: Sequence[Segment]) -> bool:
        """Whether the scope has so few messages that the index is of no use."""
        if wanted.thread is not None:
            return True
        most = most_to_scan(wanted, self._small, len(segments))
        if wanted.inboxes is None:
            return sum(segment.size for segment in segments) <= most
        if (wanted.inboxes, most) in self._large:
            return False
        key = (is_small, wanted.inboxes, most)
        if remembered(tx, key, lambda: is_small(tx, wanted, most)):
            return True
        if len(self._large) >= _MOST_LARGE:
            self._large.clear()
        self._large.add((wanted.inboxes, most))
        return False
