"""The shelves that this process has read, each used by one search at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from postroom.store.recall.shelf import Shelf
from postroom.store.transaction import Transaction

_MOST_SHELVES = 64


class Library:
    """Keeps the shelves that were used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shelves: OrderedDict[int, tuple[Shelf, threading.Lock]] = OrderedDict()

    @contextmanager
    def shelf(self, tx: Transaction, number: int) -> Iterator[Shelf]:
        """A shelf as it stands in this transaction."""
        with self._lock:
            found = self._shelves.pop(number, None) or (Shelf(number), threading.Lock())
            self._shelves[number] = found
            if len(self._shelves) > _MOST_SHELVES:
                self._shelves.popitem(last=False)
        shelf, lock = found
        with lock:
            # Another reader may have begun after us and seen more: then we read on our own.
            shelf = Shelf(number) if shelf.is_ahead_of(tx) else shelf
            shelf.refresh(tx)
            yield shelf
