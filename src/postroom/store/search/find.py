"""The door to the index: one page of the messages that are wanted, and their exact number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.store.search.characters import split_query
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
        has_border = any(split_query(text)[1] for _, text in wanted.texts())
        if is_small(tx, wanted, self._small, has_border=has_border):
            return scan(tx, wanted)
        segments = live_segments(tx)
        if not segments:
            return scan(tx, wanted)
        # numpy takes longer to load than a small store to be searched without it
        from postroom.store.search.lookup import look_up
        from postroom.store.search.paging import Pager
        from postroom.store.search.shelf import Orders, Shelf

        orders = self._orders = self._orders or Orders()
        shelf = Shelf(segments)
        mask = look_up(tx, wanted, shelf, orders)
        return Pager(tx, shelf, orders, mask, scan_tail(tx, wanted)).page(wanted)
