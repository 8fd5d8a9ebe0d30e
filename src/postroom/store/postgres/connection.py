"""Connections to a PostgreSQL server, and the translation of its errors."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any

import psycopg
from psycopg import errors as pg_errors
from psycopg.adapt import Dumper
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping
from psycopg.types.numeric import Int8BinaryDumper, NumericBinaryLoader

from postroom.errors import InvalidInput, MailError, StorageFull, Unavailable, Unstorable
from postroom.store.transaction import ReadCache, Row, Topic

log = logging.getLogger(__name__)

CONNECT_S = 5
OPTIONS: dict[str, Any] = {
    "application_name": "postroom",
    "connect_timeout": CONNECT_S,
    "client_encoding": "UTF8",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SESSION = """
    SELECT set_config(name, '0', false) FROM pg_settings
     WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_session_timeout');
    SET idle_in_transaction_session_timeout = '60s';
    SET lock_timeout = '15s';
    SET jit = off;
    SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 5;
    SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = 20000;
"""
"""Session settings.

Keepalives let the server release the locks of a machine that left the network. Timeouts of the role
or the database are removed, because an upgrade that copies a table or a backup may exceed them.
(`transaction_timeout` exists from PostgreSQL 17 on.)
"""

_SNAPSHOT = """
    SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_snapshot()::text END,
           current_database()::text, pg_postmaster_start_time()::text,
           (SELECT checkpoint_lsn::text FROM pg_control_checkpoint())
"""
"""Transactions with the same snapshot see the same data unless the server crashed in between, which
changes the checkpoint: after a crash, ids of unfinished transactions are assigned again. A snapshot
does not identify what a standby holds, so nothing is cached there.
"""

MIN_SERVER_VERSION = 140_000

RETRY_S = 10.0
"""How long work is retried while the server does not answer, unless the settings say otherwise."""

PAUSE_S = 0.1

LOST = (psycopg.OperationalError, psycopg.InterfaceError)
_CONFLICTS = frozenset({"40001", "40P01", "25006"})
"""Serialization failure, deadlock, or a server that is not the primary."""

_RESTARTING = frozenset({"57P01", "57P02", "57P03", "53300"})
"""The server stops, starts, has crashed, or has too many connections."""

_TIMED_OUT = frozenset({"57P05", "25P03", "25P04"})
"""The server ended the session after a timeout."""

_TRANSIENT = _CONFLICTS | _RESTARTING | _TIMED_OUT

_NAME = re.compile(r"'[^']*'|(?<!:):([a-zA-Z_]\w*)")
_INDEX_HINT = re.compile(r"\+(?=(\w+\.)?inbox\b)")
"""A plus before `inbox` stops SQLite, which has no statistics on inboxes, from using that index.

On PostgreSQL it would prevent partition pruning.
"""


def connect(url: str) -> psycopg.Connection:
    """Open a connection whose commits return only when the data is on disk."""
    try:
        connection = psycopg.connect(
            url, autocommit=True, cursor_factory=psycopg.RawCursor, **OPTIONS
        )
    except psycopg.ProgrammingError:
        # libpq cannot parse the URL, and its error quotes the URL with the password.
        raise InvalidInput("the URL of the database cannot be parsed; correct it") from None
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: psycopg.Connection) -> None:
    if connection.info.server_version < MIN_SERVER_VERSION:
        raise MailError(
            f"PostgreSQL {connection.info.server_version // 10_000} is too old; use 14 or newer"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise MailError(
            f"the database is in {encoding}, which cannot hold all mail; make one in UTF-8: "
            "CREATE DATABASE postroom ENCODING 'UTF8' TEMPLATE template0"
        )
    connection.execute(_SESSION)
    durable = connection.execute("SHOW synchronous_commit").fetchone()
    if durable is not None and durable[0] == "off":
        connection.execute("SET synchronous_commit = on")
    for kind in (int, bool):
        connection.adapters.register_dumper(kind, _IntegerDumper)
    connection.adapters.register_loader("numeric", _IntegerLoader)


class _IntegerDumper(Int8BinaryDumper):
    """Sends every integer as one type, so that a statement is prepared once."""

    def get_key(self, obj: int, format: object) -> type:  # noqa: A002 - psycopg's word
        return self.cls

    def upgrade(self, obj: int, format: object) -> Dumper:  # noqa: A002
        return self


class _IntegerLoader(NumericBinaryLoader):
    """Loads a sum of integers as an integer."""

    def load(self, data: bytes) -> int:  # type: ignore[override]
        return int(super().load(data))


@lru_cache(maxsize=4096)
def positional(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """Rewrite a statement from `:name` to `$1`, and return the names in order.

    SQLite's `instr` is PostgreSQL's `strpos`.
    """
    names: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        return f"${names.setdefault(match[1], len(names) + 1)}"

    own = _INDEX_HINT.sub("", sql).replace("instr(", "strpos(")
    return _NAME.sub(place, own).encode(), tuple(names)


class PostgresTransaction:
    """The open transaction of a connection.

    In pipeline mode, a statement without a result is sent with the next one whose result is needed.
    """

    remembered: dict[object, Any] | None = None
    """None for writers, which see their own uncommitted rows."""

    def __init__(
        self, connection: psycopg.Connection, pipeline: psycopg.Pipeline | None = None
    ) -> None:
        self._connection, self._pipeline = connection, pipeline
        self.announced: set[Topic] = set()
        self.known: dict[object, Any] = {}

    def all(self, sql: str, /, **params: object) -> list[Row]:
        return self._execute(sql, params).fetchall()

    def claimable(self, sql: str, of: str, /, **params: object) -> list[Row]:
        return self.all(f"{sql} FOR UPDATE OF {of} SKIP LOCKED", **params)

    def one(self, sql: str, /, **params: object) -> Row | None:
        return self._execute(sql, params).fetchone()

    def run(self, sql: str, /, **params: object) -> int:
        cursor = self._execute(sql, params)
        if self._pipeline is not None:
            self._pipeline.sync()
        return cursor.rowcount

    def put(self, sql: str, /, **params: object) -> None:
        self._execute(sql, params)

    def many(self, sql: str, rows: Iterable[Mapping[str, object]], /) -> None:
        statement, names = positional(sql)
        with self._connection.cursor() as cursor:
            cursor.executemany(statement, [[row[name] for name in names] for row in rows])

    def announce(self, topic: Topic, /) -> None:
        self.announced.add(topic)

    def _execute(self, sql: str, params: Mapping[str, object]) -> psycopg.Cursor[Row]:
        statement, names = positional(sql)
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(statement, [params[name] for name in names])


class PostgresReadTransaction(PostgresTransaction):
    """A read-only transaction, with the cache of its snapshot."""

    def __init__(self, connection: psycopg.Connection, read_cache: ReadCache) -> None:
        super().__init__(connection)
        self._read_cache = read_cache

    @cached_property
    def remembered(self) -> dict[object, Any] | None:  # type: ignore[override]
        row = self.one(_SNAPSHOT)
        return None if row is None or row[0] is None else self._read_cache.at(row)


def is_unreachable(url: str) -> bool:
    """Whether the server does not answer, or is starting.

    A failed connection has no machine-readable cause, and a wrong password is no reason to wait.
    """
    status = PGconn.ping(make_conninfo(url, **OPTIONS).encode())
    return status in (Ping.NO_RESPONSE, Ping.REJECT)


def is_transient(error: BaseException) -> bool:
    """Whether nothing was done and a retry on a new connection may succeed."""
    if not isinstance(error, psycopg.Error):
        return False
    # SQLSTATE is more precise than the class: psycopg maps some of these to server errors.
    state = error.sqlstate
    if state is None:
        return isinstance(error, LOST)
    return state.startswith("08") or state in _TRANSIENT


def translated(error: Exception) -> Exception:
    """Translate an error of PostgreSQL.

    Its text is not shown to callers: it may quote stored data of others.
    """
    if not isinstance(error, psycopg.Error):
        return error
    mail_error = _mail_error(error)
    mail_error.__cause__ = error
    return mail_error


def _mail_error(error: psycopg.Error) -> MailError:
    if isinstance(error, pg_errors.ReadOnlySqlTransaction):
        return Unavailable("the database is read-only at the moment; try again", retry_after=2)
    if is_transient(error):
        return Unavailable("the database does not answer; try again", retry_after=2)
    if isinstance(error, (pg_errors.LockNotAvailable, pg_errors.QueryCanceled)):
        return Unavailable("the database is busy; try again", retry_after=1)
    if isinstance(error, (pg_errors.DiskFull, pg_errors.OutOfMemory)):
        return StorageFull("the database is full; free some space and try again")
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return InvalidInput("a text contains U+0000, which cannot be stored; remove it")
    if isinstance(error, pg_errors.NumericValueOutOfRange):
        return InvalidInput("a number is too large to be stored")
    log.error("database.refused", extra={"error": str(error)})
    if isinstance(error, psycopg.DataError):
        return InvalidInput("the database cannot store one of these values; see the log")
    if isinstance(error, (pg_errors.ProgramLimitExceeded, psycopg.IntegrityError)):
        return Unstorable("the database rejected this; see the log")
    return MailError("the database rejected this; see the log")
