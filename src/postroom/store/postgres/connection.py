"""Connections to a PostgreSQL server, and what its errors mean to us."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any

import psycopg
from psycopg import errors as said
from psycopg.adapt import Dumper
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping
from psycopg.types.numeric import Int8BinaryDumper, NumericBinaryLoader

from postroom.errors import InvalidInput, MailError, StorageFull, Unavailable, Unstorable
from postroom.ports.bell import Topic
from postroom.store.remembering import Remembering
from postroom.store.transaction import Row

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
"""The server looks after its end of the connection as we do after ours: what a machine held that is
gone from the net, others may have. Otherwise nobody is cut off for taking long, whatever the role
or the database says: a step that copies a table would never come to its end, nor would a backup.
(`transaction_timeout` is there from PostgreSQL 17 on.)"""

_MOMENT = """
    SELECT CASE WHEN NOT pg_is_in_recovery()
                 AND NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus')
                THEN pg_current_snapshot()::text END,
           current_database()::text, pg_postmaster_start_time()::text,
           (SELECT checkpoint_lsn::text FROM pg_control_checkpoint())
"""
"""Two transactions with the same snapshot see the same, if the server has not crashed in between:
what was under way then may be forgotten, and its numbers given anew. After a crash there is another
checkpoint. What a standby sees, and what the machines of Citus hold, a snapshot does not tell:
nothing is remembered there."""

OLDEST_SERVER = 140_000

PATIENCE_S = 10.0
"""How long work is tried again while the server does not answer."""

PAUSE_S = 0.1

LOST = (psycopg.OperationalError, psycopg.InterfaceError)
_AGAIN = frozenset({"40001", "40P01", "25006"})
"""Others were quicker, or the server that we reach is not the first one yet, or any more."""

_COMING_BACK = frozenset({"57P01", "57P02", "57P03", "53300"})
"""The server stops, starts, has crashed, or has too many connections."""

_CUT_OFF = frozenset({"57P05", "25P03", "25P04"})
"""The server thought us gone, or was told to let nobody take so long."""

_PASSING = _AGAIN | _COMING_BACK | _CUT_OFF

_NAME = re.compile(r"'[^']*'|(?<!:):([a-zA-Z_]\w*)")
_BARRED = re.compile(r"\+(?=(\w+\.)?inbox\b)")
"""A plus before the inbox keeps SQLite, which knows nothing of how many messages an inbox has, from
looking for them by it. Here it would hide the partition that is meant."""


def connect(url: str) -> psycopg.Connection:
    """Open a connection on which a commit returns only when the data is on disk."""
    try:
        connection = psycopg.connect(
            url, autocommit=True, cursor_factory=psycopg.RawCursor, **OPTIONS
        )
    except psycopg.ProgrammingError:
        # Nobody was asked yet: libpq cannot read the URL, and quotes it, with its password.
        raise InvalidInput("the address of the database cannot be read; correct it") from None
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: psycopg.Connection) -> None:
    if connection.info.server_version < OLDEST_SERVER:
        raise MailError(f"PostgreSQL {connection.info.server_version // 10_000} is too old; use 14")
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
        connection.adapters.register_dumper(kind, _Integer)
    connection.adapters.register_loader("numeric", _Whole)


class _Integer(Int8BinaryDumper):
    """Every number as one type, so that a statement is prepared once."""

    def get_key(self, obj: int, format: object) -> type:  # noqa: A002 - psycopg's word
        return self.cls

    def upgrade(self, obj: int, format: object) -> Dumper:  # noqa: A002
        return self


class _Whole(NumericBinaryLoader):
    """A sum of whole numbers is a whole number."""

    def load(self, data: bytes) -> int:  # type: ignore[override]
        return int(super().load(data))


@lru_cache(maxsize=4096)
def positional(sql: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement with `$1` for `:name`, and the names in their order."""
    names: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        return f"${names.setdefault(match[1], len(names) + 1)}"

    return _NAME.sub(place, _BARRED.sub("", sql)).encode(), tuple(names)


class PostgresTransaction:
    """The open transaction of one connection.

    In a pipeline, what nobody waits for travels with the next statement whose answer is needed.
    """

    remembered: dict[object, Any] | None = None
    """Who writes sees what nobody else does."""

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


class PostgresReading(PostgresTransaction):
    """A transaction that only reads, and what is remembered of the moment that it sees."""

    def __init__(self, connection: psycopg.Connection, remembering: Remembering) -> None:
        super().__init__(connection)
        self._remembering = remembering

    @cached_property
    def remembered(self) -> dict[object, Any] | None:  # type: ignore[override]
        row = self.one(_MOMENT)
        return None if row is None or row[0] is None else self._remembering.at(row)


def is_away(url: str) -> bool:
    """Whether nobody answers, or only to say that the server starts.

    Whoever cannot connect is not told why in a way that a program reads: a wrong password is no
    reason to wait.
    """
    told = PGconn.ping(make_conninfo(url, **OPTIONS).encode())
    return told in (Ping.NO_RESPONSE, Ping.REJECT)


def is_passing(error: BaseException) -> bool:
    """Whether nothing was done, and the same may work in a moment, on a new connection."""
    if not isinstance(error, psycopg.Error):
        return False
    # The state says more than the class: psycopg has some of these as errors of the server itself.
    state = error.sqlstate
    if state is None:
        return isinstance(error, LOST)
    return state.startswith("08") or state in _PASSING


def explained(error: Exception) -> Exception:
    """What PostgreSQL says, in our words.

    None of its own go to a caller: they may quote what others have stored.
    """
    if not isinstance(error, psycopg.Error):
        return error
    ours = _in_our_words(error)
    ours.__cause__ = error
    return ours


def _in_our_words(error: psycopg.Error) -> MailError:
    if isinstance(error, said.ReadOnlySqlTransaction):
        return Unavailable("the database can only be read for now; try again", retry_after=2)
    if is_passing(error):
        return Unavailable("the database does not answer; try again", retry_after=2)
    if isinstance(error, (said.LockNotAvailable, said.QueryCanceled)):
        return Unavailable("the database is busy; try again", retry_after=1)
    if isinstance(error, (said.DiskFull, said.OutOfMemory)):
        return StorageFull("the database is full; free some space and try again")
    if isinstance(error, psycopg.DataError) and "NUL" in str(error):
        return InvalidInput("a text holds U+0000, which cannot be stored; take it out")
    if isinstance(error, said.NumericValueOutOfRange):
        return InvalidInput("a number is too large to be stored")
    log.error("database.refused", extra={"error": str(error)})
    if isinstance(error, psycopg.DataError):
        return InvalidInput("the database cannot store one of these values; the log says why")
    if isinstance(error, (said.ProgramLimitExceeded, psycopg.IntegrityError)):
        return Unstorable("the database refused this; the log says why")
    return MailError("the database refused this; the log says why")


@contextmanager
def postgres_errors() -> Iterator[None]:
    """Let no error of psycopg out."""
    try:
        yield
    except psycopg.Error as error:
        raise explained(error) from error
