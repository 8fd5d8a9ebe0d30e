"""Connections to one SQLite file, and what its errors mean to us."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

import apsw

from postroom.errors import MailError, StorageFull, Unstorable
from postroom.ports.bell import Topic
from postroom.store.remembering import Remembering
from postroom.store.transaction import Row

OLDEST_SQLITE = 3_051_003
"""Before 3.51.3 a WAL that two connections write and checkpoint at once can be corrupted."""


class Role(Enum):
    """What a connection is for."""

    WRITER = "writer"
    READER = "reader"
    SCANNER = "scanner"


_CACHED_KB = {Role.WRITER: 16_384, Role.READER: 16_384, Role.SCANNER: 2_048}
"""Who reads everything once has no use for a page again. None maps the file into memory: that made
searches no quicker, and what was touched counted as our memory."""

_BUSY_PAUSE_S = 0.002
_BUSY_TRIES = 15_000
_WAL_TRIES = 200


class StorageFailed(MailError):
    """The disk refused a write or a sync. Nothing is acknowledged any more until a restart."""


def check_sqlite(version: int | None = None) -> None:
    """Refuse to run on a SQLite that is not safe. Raises MailError."""
    found = apsw.SQLITE_VERSION_NUMBER if version is None else version
    if found < OLDEST_SQLITE:
        name = f"{found // 1_000_000}.{found // 1_000 % 1_000}.{found % 1_000}"
        raise MailError(
            f"sqlite_wal_reset: SQLite {name} can corrupt a database in WAL mode; "
            "install apsw 3.51.3 or newer"
        )


def connect(path: Path, role: Role) -> apsw.Connection:
    """Open a connection; a commit on it returns only when the data is on disk.

    A new file is for its owner's eyes only, and what SQLite puts beside it follows suit.
    """
    _make(path)
    connection = apsw.Connection(str(path))
    connection.set_busy_handler(_try_again)
    _use_wal(connection)
    for pragma in (
        "synchronous = FULL",
        "temp_store = MEMORY",
        f"cache_size = -{_CACHED_KB[role]}",
        "mmap_size = 0",
        f"query_only = {'OFF' if role is Role.WRITER else 'ON'}",
    ):
        connection.pragma(*(part.strip() for part in pragma.split("=")))
    return connection


def _make(path: Path) -> None:
    """Make the file if there is none.

    One that is there is never opened beside SQLite: to close it would end every lock that this
    process has on it, and who comes next would take the log of a database in use for left over.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _try_again(tries: int) -> bool:
    """Whether to wait on for a lock. SQLite's own patience grows: it would miss short pauses."""
    time.sleep(_BUSY_PAUSE_S)
    return tries < _BUSY_TRIES


def _use_wal(connection: apsw.Connection) -> None:
    """Switch to WAL; the busy timeout does not cover this, so another opener may be in the way."""
    for attempt in range(_WAL_TRIES):
        try:
            connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if attempt == _WAL_TRIES - 1:
                raise
            time.sleep(0.01)
        else:
            return


class SqliteTransaction:
    """The open transaction of one connection."""

    def __init__(
        self, connection: apsw.Connection, remembered: dict[object, Any] | None = None
    ) -> None:
        self._connection = connection
        self.announced: set[Topic] = set()
        self.known: dict[object, Any] = {}
        self.remembered = remembered

    def all(self, sql: str, /, **params: object) -> list[Row]:
        return self._connection.execute(sql, params).fetchall()

    def claimable(self, sql: str, of: str, /, **params: object) -> list[Row]:
        return self.all(sql, **params)

    def one(self, sql: str, /, **params: object) -> Row | None:
        return self._connection.execute(sql, params).fetchone()

    def run(self, sql: str, /, **params: object) -> int:
        self._connection.execute(sql, params)
        return self._connection.changes()

    def put(self, sql: str, /, **params: object) -> None:
        self._connection.execute(sql, params)

    def many(self, sql: str, rows: Iterable[Mapping[str, object]], /) -> None:
        self._connection.executemany(sql, rows)

    def announce(self, topic: Topic, /) -> None:
        self.announced.add(topic)


class Reader:
    """A connection that only reads, and what it remembers for as long as nobody writes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._remembering = Remembering()

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """One consistent snapshot."""
        self._connection.execute("BEGIN")
        try:
            yield SqliteTransaction(self._connection, self._still_true())
        finally:
            self._connection.execute("ROLLBACK")

    def _still_true(self) -> dict[object, Any]:
        """What is remembered. SQLite says another number whenever somebody else has written."""
        return self._remembering.at(self._connection.execute("PRAGMA data_version").fetchone())


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Turn what SQLite says into what we say."""
    try:
        yield
    except apsw.FullError as error:
        raise StorageFull("the disk is full; free some space and try again") from error
    except apsw.IOError as error:
        raise StorageFailed(f"the disk failed ({error}); restart once it is well") from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise MailError("the database is busy with another process; try again") from error
    except (apsw.ConstraintError, apsw.TooBigError) as error:
        raise Unstorable(f"the database refused this ({error})") from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StorageFailed(f"the database is damaged ({error}); restore a backup") from error
