"""Answering from the index: apart from `find`, since it needs numpy."""

from __future__ import annotations

from postroom.store.search.lookup import Lookup
from postroom.store.search.paging import Pager
from postroom.store.search.segments import Segment
from postroom.store.search.shelf import Orders, Shelf
from postroom.store.search.tail import Tail
from postroom.store.search.wanted import Answer, Wanted
from postroom.store.transaction import Transaction, remembered


class Index:
    """Remembers what never changes of the segments and of the tail it has seen."""

    def __init__(self) -> None:
        self._orders = Orders()
        self._tail = Tail()

    def find(self, tx: Transaction, wanted: Wanted, segments: list[Segment]) -> Answer:
        """One page of what is in the segments and in the tail."""
        shelf = remembered(tx, Shelf, lambda: Shelf(segments))
        mask = Lookup(tx, wanted, shelf, self._orders).mask()
        return Pager(tx, shelf, self._orders, mask, self._tail.matches(tx, wanted)).page(wanted)
