"""The door to the index: one page of the messages that are wanted, and their exact number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.store.search.scanning import SMALL, Small, is_small, scan, scan_tail
from postroom.store.search.segments import live_segments
from postroom.store.search.wanted import Answer, Wanted
from postroom.store.transaction import Transaction

if TYPE_CHECKING:
    from postroom.store.search.shelf import Orders


class Finder:
    """Finds messages, and remembers what never changes of the segments it has seen."""

    def __init__(self, small: Small = SMALL) -> None:
        self._small = small
        self._orders: Orders | None = None

    def find(self, tx: Transaction, wanted: Wanted) -> Answer:
        """Answer a question: small scopes from the messages, large ones from the index."""
        segments = live_segments(tx)
        if not segments or is_small(tx, wanted, self._small, indexed=sum(s.size for s in segments)):
            return scan(tx, wanted)
        # numpy takes longer to load than a small store to be searched without it
        from postroom.store.search.lookup import Lookup
        from postroom.store.search.paging import Pager
        from postroom.store.search.shelf import Orders, Shelf

        orders = self._orders = self._orders or Orders()
        shelf = Shelf(segments)
        mask = Lookup(tx, wanted, shelf, orders).mask()
        return Pager(tx, shelf, orders, mask, scan_tail(tx, wanted)).page(wanted)
