"""Connections to a SQLite file, the translation of its errors, and the notifier between processes.

The notifier is one named pipe per listening process, beside the database. A pipe has no limit on
the length of its path, unlike a socket. A pipe without a reader belonged to a process that has
ended; the next publisher removes it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

import apsw

from postroom.errors import MailError, StorageFull, Unavailable, Unstorable
from postroom.store.transaction import ReadCache, Row, Subscriptions, Topic

MIN_SQLITE_VERSION = 3_051_003
"""Before 3.51.3, concurrent writes and checkpoints can corrupt a WAL."""


class Role(Enum):
    """The purpose of a connection."""

    WRITER = "writer"
    READER = "reader"
    SCANNER = "scanner"


_CACHED_KB = {Role.WRITER: 16_384, Role.READER: 16_384, Role.SCANNER: 2_048}
"""Page cache per role; a scanner reads each page once.

The file is not memory-mapped: that made searches no faster, and touched pages counted as memory of
the process.
"""

_BUSY_PAUSE_S = 0.002
_BUSY_S, _OPENING_BUSY_S = 8.0, 30.0
"""How long to wait for a lock of another process: at work, and for the upgrade of a database."""
_BUSY_AGAIN_S = 5
_WAL_TRIES = 200


class StorageFailed(MailError):
    """The disk rejected a write or a sync; no write is accepted until a restart."""


def check_sqlite(version: int | None = None) -> None:
    """Refuse a SQLite version that is not safe. Raises MailError."""
    found = apsw.SQLITE_VERSION_NUMBER if version is None else version
    if found < MIN_SQLITE_VERSION:
        name = f"{found // 1_000_000}.{found // 1_000 % 1_000}.{found % 1_000}"
        raise MailError(
            f"SQLite {name} has the WAL-reset bug, which can corrupt a database; "
            "install apsw 3.51.3 or newer"
        )


def connect(path: Path, role: Role) -> apsw.Connection:
    """Open a connection whose commits return only when the data is on disk.

    A new file is readable by its owner only, and so are the files that SQLite creates beside it.
    """
    _create(path)
    connection = apsw.Connection(str(path))
    wait_for_locks(connection, _OPENING_BUSY_S if role is Role.WRITER else _BUSY_S)
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


def _create(path: Path) -> None:
    """Create the file if it does not exist.

    An existing file is never opened outside SQLite: closing it would end all locks of this process
    on it, and the next process would treat the log of a database in use as abandoned.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def wait_for_locks(connection: apsw.Connection, limit_s: float = _BUSY_S) -> None:
    """Set how long a connection waits; the growing delays of SQLite would miss short gaps."""
    ends_at = 0.0

    def keep_waiting(tries: int) -> bool:
        nonlocal ends_at
        if tries == 0:
            ends_at = time.monotonic() + limit_s
        time.sleep(_BUSY_PAUSE_S)
        return time.monotonic() < ends_at

    connection.set_busy_handler(keep_waiting)


def _use_wal(connection: apsw.Connection) -> None:
    """Switch to WAL mode, with retries, because the busy handler does not cover this pragma."""
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
    """The open transaction of a connection."""

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
    """A read-only connection, and a cache that is valid until the next commit."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._read_cache = ReadCache()

    @contextmanager
    def transaction(self) -> Iterator[SqliteTransaction]:
        """Begin a transaction on one consistent snapshot."""
        self._connection.execute("BEGIN")
        try:
            # It changes after every commit of another connection.
            version = self._connection.execute("PRAGMA data_version").fetchone()
            yield SqliteTransaction(self._connection, self._read_cache.at(version))
        finally:
            self._connection.execute("ROLLBACK")


@contextmanager
def sqlite_errors() -> Iterator[None]:
    """Translate errors of SQLite."""
    try:
        yield
    except apsw.FullError as error:
        raise StorageFull("the disk is full; free some space and try again") from error
    except apsw.IOError as error:
        raise StorageFailed(
            f"the disk failed ({error}); repair it, then restart Postroom"
        ) from error
    except (apsw.BusyError, apsw.LockedError) as error:
        message = "another process has locked the database; try again"
        raise Unavailable(message, retry_after=_BUSY_AGAIN_S) from error
    except (apsw.ConstraintError, apsw.TooBigError) as error:
        raise Unstorable(f"the database rejected this ({error})") from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise StorageFailed(f"the database is damaged ({error}); restore a backup") from error


_CODES: dict[Topic, bytes] = {
    "events": b"e",
    "outbox": b"o",
    "webhooks": b"w",
    "rule_jobs": b"r",
    "heartbeats": b"t",
    "accounts": b"a",
    "keys": b"k",
}
_TOPICS = {code[0]: topic for topic, code in _CODES.items()}
_UNNAMED = ".new-"


class PipeNotifier:
    """Wakes waiting tasks of this process; published to by the writer thread of any process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._descriptor = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._subscriptions = Subscriptions()

    def publish(self, topics: Iterable[Topic]) -> None:
        """Wake all listening processes; errors are ignored, because the commit has succeeded."""
        codes = b"".join(_CODES[topic] for topic in topics)
        with suppress(OSError):
            for entry in os.listdir(self._folder):
                if not entry.startswith(_UNNAMED):
                    self._publish_to(self._folder / entry, codes)

    def _publish_to(self, path: Path, codes: bytes) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            with suppress(OSError):
                path.unlink()
            return
        # A full pipe already wakes its reader.
        with suppress(OSError):
            os.write(descriptor, codes)
        os.close(descriptor)

    def position(self, topic: Topic) -> int:
        if self._loop is None and not self._subscriptions.is_closed:
            self._listen(asyncio.get_running_loop())
        return self._subscriptions.count(topic)

    async def wait(self, topic: Topic, seen: int) -> int:
        self.position(topic)
        return await self._subscriptions.wait(topic, seen)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create the pipe and give it its name once it has a reader, so that it is not removed.

        The process also holds the write end, or the reader would wake for each writer that closes.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        unnamed = self._folder / (_UNNAMED + name)
        os.mkfifo(unnamed, 0o600)
        self._descriptor = os.open(unnamed, os.O_RDWR | os.O_NONBLOCK)
        self._path = self._folder / name
        os.rename(unnamed, self._path)
        loop.add_reader(self._descriptor, self._read)
        self._loop = loop

    def _read(self) -> None:
        try:
            codes = os.read(self._descriptor, 65_536)
        except BlockingIOError:
            return
        self._subscriptions.announced({_TOPICS[code] for code in codes if code in _TOPICS})

    def close(self) -> None:
        """Stop listening and remove the pipe."""
        self._subscriptions.close()
        if self._loop is None or self._path is None:
            return
        with suppress(RuntimeError):
            self._loop.remove_reader(self._descriptor)
        with suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
        self._loop = None
