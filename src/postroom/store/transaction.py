"""The protocols of a database: a transaction, the engine that runs them, and the notifier."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]


Topic = Literal["accounts", "events", "outbox", "webhooks", "rule_jobs", "keys", "heartbeats"]
"""What a commit can announce."""


class Notifier(Protocol):
    """Counts the commits that announced a topic, in every process on the same data.

    To miss nothing, read `position` first, then the data, and then wait for a higher position.
    """

    def position(self, topic: Topic) -> int:
        """The number of announcements since this process subscribed, which this call does."""

    async def wait(self, topic: Topic, seen: int) -> int:
        """Return the new position once it is higher than *seen*."""


class Transaction(Protocol):
    """An open transaction. `:name` parameters in the SQL take their values from the keywords.

    `known` caches what was read in this transaction and cannot change before its end. `remembered`
    caches what earlier ones have read, until the next write; None where writes are not detected.
    """

    @property
    def known(self) -> dict[object, Any]: ...

    @property
    def remembered(self) -> dict[object, Any] | None: ...

    def all(self, sql: str, /, **params: object) -> list[Row]:
        """Run a statement and return every row."""

    def claimable(self, sql: str, of: str, /, **params: object) -> list[Row]:
        """Like `all`, for rows of the table *of* that are about to be claimed.

        Rows that another transaction is claiming are skipped.
        """

    def one(self, sql: str, /, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""

    def run(self, sql: str, /, **params: object) -> int:
        """Run a statement and return how many rows it changed."""

    def put(self, sql: str, /, **params: object) -> None:
        """Run a statement without a result; it may be sent together with the next ones."""

    def many(self, sql: str, rows: Iterable[Mapping[str, object]], /) -> None:
        """Run one statement once for each mapping of parameters."""

    def announce(self, topic: Topic, /) -> None:
        """Announce a topic to the notifier after the commit."""


def remembered(tx: Transaction, key: object, read: Callable[[], T]) -> T:
    """The result of *read*, cached until the next write; callers must not change it."""
    if tx.remembered is None:
        return read()
    if key not in tx.remembered:
        tx.remembered[key] = read()
    found: T = tx.remembered[key]
    return found


class Engine(Protocol):
    """A database that runs functions inside transactions, off the event loop.

    A function may be run again after an interruption, so it must change nothing but the database.
    """

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* on one consistent snapshot."""

    async def scan(self, work: Callable[[Transaction], T]) -> T:
        """Run *work*, which reads much data once, with a small page cache."""

    async def compute(self, work: Callable[[], T]) -> T:
        """Run *work*, which does not use the database, once, in a thread for scans."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* atomically; when this returns, what it wrote is on disk."""

    @property
    def notifier(self) -> Notifier: ...

    def check(self, tx: Transaction) -> tuple[str, ...]:
        """The problems that the database finds in its own files."""

    def size(self, tx: Transaction) -> tuple[str, int]:
        """The name and version of the database, and its size in bytes."""

    def counters(self, tx: Transaction, tables: Sequence[str]) -> dict[str, int]:
        """The last number that each table has assigned."""

    def set_counters(self, tx: Transaction, counters: Mapping[str, int]) -> None:
        """Set the last number that each table has assigned."""

    def clear_unused(self, tx: Transaction, table: str) -> None:
        """Overwrite what earlier rows have left in the pages of a small table."""

    def guard(self) -> None:
        """From now on, `write` raises Conflict if the database was migrated away."""

    def begin_shutdown(self) -> None:
        """Stop waiting for a database that does not answer; `close` follows."""

    async def close(self) -> None: ...


_MOST = 32
"""Entries kept per state; one for a million messages takes 125 KB."""


class ReadCache:
    """What was read in one state of a database. Thread-safe."""

    def __init__(self) -> None:
        self._read: tuple[object, dict[object, Any]] = (None, {})

    def at(self, moment: object) -> dict[object, Any]:
        """The cache of this state; that of another state is dropped."""
        read = self._read
        if read[0] != moment or len(read[1]) > _MOST:
            read = self._read = moment, {}
        return read[1]


class Subscriptions:
    """The part of a notifier inside this process; used on the event loop only."""

    def __init__(self) -> None:
        self._counts: Counter[Topic] = Counter()
        self._waiting: dict[Topic, asyncio.Future[None]] = {}
        self.is_closed = False

    def count(self, topic: Topic) -> int:
        """The number of announcements of a topic."""
        return self._counts[topic]

    async def wait(self, topic: Topic, seen: int) -> int:
        """Return the new count once it is higher than *seen*. Raises CancelledError if closed."""
        while self._counts[topic] <= seen:
            if self.is_closed:
                raise asyncio.CancelledError
            if topic not in self._waiting:
                self._waiting[topic] = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiting[topic])
        return self._counts[topic]

    def announced(self, topics: Iterable[Topic]) -> None:
        """Count an announcement of each topic, and wake those who wait for it."""
        for topic in topics:
            self._counts[topic] += 1
            waiting = self._waiting.pop(topic, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def close(self) -> None:
        """Cancel all current and future waits."""
        self.is_closed = True
        for waiting in self._waiting.values():
            waiting.cancel()
