"""What a store's functions see of a database: one transaction, plain SQL, named parameters.

Every function of the store is written once against these two protocols; an engine (SQLite,
PostgreSQL) runs them in a thread, inside one transaction that is committed when they return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from postroom.ports.bell import Topic

T = TypeVar("T")
Row = tuple[Any, ...]


class Transaction(Protocol):
    """One open transaction. `:name` parameters in the SQL take their values from the keywords.

    `known` is what was looked up in it and will not be otherwise before its end. `remembered` is
    what earlier ones have read and nobody has written since; None where that cannot be told.
    """

    @property
    def known(self) -> dict[object, Any]: ...

    @property
    def remembered(self) -> dict[object, Any] | None: ...

    def all(self, sql: str, /, **params: object) -> list[Row]:
        """Run a statement and return every row."""

    def claimable(self, sql: str, of: str, /, **params: object) -> list[Row]:
        """The same for rows of the table *of* that are about to be claimed.

        Those that somebody else is claiming now are passed over.
        """

    def one(self, sql: str, /, **params: object) -> Row | None:
        """Run a statement and return its first row, or None."""

    def run(self, sql: str, /, **params: object) -> int:
        """Run a statement for its effect and return how many rows it changed."""

    def put(self, sql: str, /, **params: object) -> None:
        """Run a statement for an effect that nobody counts; it may travel with the next ones."""

    def many(self, sql: str, rows: Iterable[Mapping[str, object]], /) -> None:
        """Run one statement once for each mapping of parameters."""

    def announce(self, topic: Topic, /) -> None:
        """Ring the bell for a topic once this is committed."""


def remembered(tx: Transaction, key: object, read: Callable[[], T]) -> T:
    """What *read* returns, or returned since anybody wrote; whoever gets it must not change it."""
    if tx.remembered is None:
        return read()
    if key not in tx.remembered:
        tx.remembered[key] = read()
    found: T = tx.remembered[key]
    return found


class Engine(Protocol):
    """A database that runs functions inside transactions, off the event loop.

    One that is interrupted may be run again, so it must change nothing but the database.
    """

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* on one consistent snapshot."""

    async def scan(self, work: Callable[[Transaction], T]) -> T:
        """Run *work*, which reads much and reads it once, so that it takes little memory."""

    async def compute(self, work: Callable[[], T]) -> T:
        """Run *work*, which asks the database nothing, once, in a thread that scans."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run *work* atomically; when this returns, what it wrote is on disk."""
