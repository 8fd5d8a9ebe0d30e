"""Values in statements: times, lists and names as they are stored; conditions, views and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from postroom.model.inbox import Visible
from postroom.model.mail.approval import Hold
from postroom.model.mail.message import FLAGS, BlobKey
from postroom.model.page import Found, Slice
from postroom.model.values import dataclass
from postroom.model.view import EVERYTHING, Everything, Numbers, Only, View, view_of
from postroom.store.transaction import Row, Transaction

T = TypeVar("T")

to_text = msgspec.json.Encoder().encode
from_text = msgspec.json.Decoder().decode


def dumps(value: Any) -> str:
    """Encode a value as JSON text."""
    return to_text(value).decode()


def seconds(moment: datetime) -> int:
    """Convert a time to its stored form."""
    return int(moment.timestamp())


def moment(value: int) -> datetime:
    """Convert a stored time to a value."""
    return datetime.fromtimestamp(value, UTC)


def seconds_or_none(moment: datetime | None) -> int | None:
    """Convert a time that may be missing to its stored form."""
    return None if moment is None else seconds(moment)


def moment_or_none(value: int | None) -> datetime | None:
    """Convert a stored time that may be NULL to a value."""
    return None if value is None else moment(value)


def scalar(tx: Transaction, sql: str, /, **params: object) -> Any:
    """The first column of the first row; None if there is no row."""
    row = tx.one(sql, **params)
    return row[0] if row else None


def exists(tx: Transaction, sql: str, /, **params: object) -> bool:
    """Whether a query finds a row."""
    return tx.one(sql, **params) is not None


@cache
def _insertion(table: str, columns: tuple[str, ...], end: str = "") -> str:
    values = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}){end}"


def insert(tx: Transaction, table: str, end: str = "", /, **values: object) -> None:
    """Insert one row; the keywords are its columns, and *end* ends the statement."""
    tx.put(_insertion(table, tuple(values), end), **values)


def insert_numbered(tx: Transaction, table: str, /, **values: object) -> int:
    """Insert one row, and return the number that it gets."""
    return int(scalar(tx, _insertion(table, tuple(values), " RETURNING number"), **values))


def insert_many(
    tx: Transaction, table: str, rows: Sequence[Mapping[str, object]], end: str = ""
) -> None:
    """Insert rows that have the same columns."""
    if rows:
        put_many(tx, _insertion(table, tuple(rows[0]), end), rows)


def update(tx: Transaction, table: str, key: Mapping[str, object], /, **values: object) -> None:
    """Update the rows that have these values in the columns of a key."""
    tx.put(_updating(table, tuple(key), tuple(values)), **key, **values)


@cache
def _updating(table: str, key: tuple[str, ...], columns: tuple[str, ...]) -> str:
    changes, which = ([f"{column} = :{column}" for column in names] for names in (columns, key))
    return f"UPDATE {table} SET {', '.join(changes)} WHERE {' AND '.join(which)}"


def put_many(tx: Transaction, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Run a statement without a result once for each mapping of parameters."""
    if len(rows) == 1:
        tx.put(sql, **rows[0])
    elif rows:
        tx.many(sql, rows)


def caseless(name: str) -> str:
    """Casefold the name of a label or mailbox for comparison."""
    return name.casefold()


def flag_bits(flags: Sequence[str]) -> int:
    """Encode flags as one integer."""
    return sum(1 << FLAGS.index(flag) for flag in set(flags))


def flag_names(bits: int) -> tuple[str, ...]:
    """Decode the flags of a stored integer."""
    return tuple(name for position, name in enumerate(FLAGS) if bits >> position & 1)


_BATCH_SIZE = 500
_PAD_TO = 16
_MAX_CACHED = 200
"""Longer parameter lists are not cached, because they would fill the memory."""


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """Lists of at most so many values as one statement has parameters for."""
    remaining = iter(values)
    while batch := list(islice(remaining, _BATCH_SIZE)):
        yield batch


class _Parameters(NamedTuple):
    """Parameter names, and their SQL as a list and as a table."""

    names: list[str]
    among: str
    each: str


def _parameters(name: str, count: int) -> _Parameters:
    return (_cached if count <= _MAX_CACHED else _build)(name, count)


def _build(name: str, count: int) -> _Parameters:
    names = [f"{name}{position}" for position in range(count)]
    among = ", ".join(f":{one}" for one in names) or "NULL"
    return _Parameters(names, f"IN ({among})", "VALUES " + ", ".join(f"(:{one})" for one in names))


_cached = lru_cache(256)(_build)


def any_of(name: str, values: Sequence[object]) -> tuple[str, dict[str, object]]:
    """`IN (…)` with one parameter per value, and the parameters."""
    parameters = _parameters(name, len(values))
    return parameters.among, dict(zip(parameters.names, values, strict=True))


def all_among(
    tx: Transaction, sql: str, values: Iterable[object], /, **params: object
) -> list[Row]:
    """The rows of a query whose condition `{among}` stands for any number of values."""
    found: list[Row] = []
    for batch in batches(values):
        among, some = any_of("one", batch)
        found += tx.all(sql.format(among=among), **some, **params)
    return found


def each_of(name: str, values: Sequence[object]) -> tuple[str, dict[str, object]]:
    """`VALUES …` with one row per value, and the parameters: a table to begin a join with."""
    parameters = _parameters(name, len(values))
    return parameters.each, dict(zip(parameters.names, values, strict=True))


def padded(values: Sequence[T]) -> list[T]:
    """Repeat the last value up to a multiple of the batch size, to limit distinct statements."""
    return [*values, *[values[-1]] * (-len(values) % _PAD_TO)]


def any_pair(name: str, values: Sequence[tuple[object, object]]) -> tuple[str, dict[str, object]]:
    """`IN (…)` on two columns."""
    pairs, names = _pairs(name, len(values))
    return f"IN (VALUES {pairs})", dict(zip(names, chain.from_iterable(values), strict=True))


@cache
def _pairs(name: str, count: int) -> tuple[str, list[str]]:
    """The SQL of a number of parameter pairs, and their names."""
    names = [f"{name}{at}_{side}" for at in range(count) for side in (0, 1)]
    pairs = (f"(:{one}, :{other})" for one, other in zip(names[::2], names[1::2], strict=True))
    return ", ".join(pairs), names


CONTAINS = "LIKE :{name} ESCAPE '!'"
"""LIKE, because the database finds a string in a folded text faster than Python reads the text."""


def pattern(text: str) -> str:
    """The argument of `CONTAINS` for a folded text."""
    for character in "!%_":
        text = text.replace(character, "!" + character)
    return f"%{text}%"


def is_storable(text: str) -> bool:
    """Whether the database can store a text: it accepts neither NUL nor surrogates."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def inbox_number(tx: Transaction, inbox_id: str) -> int:
    """The number of an inbox; 0 if there is none."""
    return int(scalar(tx, "SELECT number FROM inboxes WHERE id = :id", id=inbox_id) or 0)


def visible_numbers(tx: Transaction, visible: Visible) -> Numbers:
    """The numbers of the inboxes that a caller can see."""
    if isinstance(visible, Everything):
        return EVERYTHING
    rows = all_among(tx, "SELECT number FROM inboxes WHERE id {among}", visible.named)
    return Only(tuple(row[0] for row in rows))


def view_in(text: str | bytes | None) -> View:
    """Decode a stored view; NULL and null are everything."""
    return view_of(None if text is None else from_text(text))


def stored_view(view: View) -> str | None:
    """Encode a view; NULL is everything."""
    return None if isinstance(view, Everything) else dumps(view.named)


def hold_in(details: Mapping[str, Any]) -> Hold | None:
    """The hold of a message from its stored details."""
    stored = details.get("hold")
    if not stored:
        return None
    times = {name: moment(stored[name]) for name in ("held_at", "expires_at")}
    decided_at = stored.get("decided_at")
    return Hold(
        **{**stored, **times, "reasons": tuple(stored["reasons"])}
        | ({"decided_at": moment(decided_at)} if decided_at is not None else {})
    )


def stored_hold(hold: Hold) -> dict[str, object]:
    """A hold as it is stored with its message."""
    values: dict[str, object] = {name: getattr(hold, name) for name in Hold.__slots__}
    times = {n: seconds(v) for n, v in values.items() if isinstance(v, datetime)}
    return {name: value for name, value in (values | times).items() if value is not None}


def within(column: str, view: View | Numbers, name: str = "inbox") -> tuple[str, dict[str, object]]:
    """A condition that limits a query to a view; an empty view matches nothing.

    On inboxes it also selects the partition. The column begins with a plus where rows are found by
    their numbers, see `postgres.connection`.
    """
    if isinstance(view, Everything):
        return "1 = 1", {}
    among, params = any_of(name, view.named)
    return f"{column} {among}", params


class Conditions:
    """Conditions of a WHERE clause, joined by AND, with their parameters."""

    def __init__(self) -> None:
        self._clauses: list[str] = []
        self.params: dict[str, object] = {}

    def add(self, clause: str, **params: object) -> None:
        self._clauses.append(clause)
        self.params |= params

    def among(self, column: str, name: str, values: Sequence[object]) -> None:
        """Require one of the values; an empty sequence matches nothing."""
        clause, params = any_of(name, values)
        self.add(f"{column} {clause}", **params)

    def within(self, column: str, view: View | Numbers, name: str = "inbox") -> None:
        """Require a value that is in a view."""
        if not isinstance(view, Everything):
            self.among(column, name, view.named)

    @property
    def sql(self) -> str:
        return " AND ".join(self._clauses) or "1 = 1"


def page_of(found: Sequence[T], page: Slice) -> Found[T]:
    """One page of a list that is in memory; its cursor is an offset."""
    start = int(page.after[0]) if page.after else page.offset
    shown = found[start : start + page.limit]
    end = start + len(shown)
    return Found(tuple(shown), len(found), start, (end,) if shown and end < len(found) else None)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list query in the order of its key, oldest first by default."""

    columns: str
    tables: str
    key: str
    """The columns that order the rows; together they are unique and not NULL."""
    is_newest_first: bool = False
    counted: str = ""
    """The tables that suffice for counting, if not all are needed."""

    def page(
        self, tx: Transaction, where: Conditions, page: Slice, read: Callable[[Row], T]
    ) -> Found[T]:
        """One page of the matching rows, each converted to a value.

        The columns of the key are added to those that *read* gets; they are the cursor.
        """
        names = self.key.split(", ")
        total, offset, ahead = self._count(tx, where), page.offset, ""
        place = {f"after{n}": int(value) for n, value in enumerate(page.after or ())}
        if place:
            after = ", ".join(f":{name}" for name in place)
            ahead = f" AND ({self.key}) {'<' if self.is_newest_first else '>'} ({after})"
            offset = total - self._count(tx, where, ahead, **place)
        order = [f"{name} DESC" if self.is_newest_first else name for name in names]
        rows = tx.all(
            f"""SELECT {self.columns}, {self.key} FROM {self.tables} WHERE {where.sql}{ahead}
                 ORDER BY {", ".join(order)} LIMIT :limit OFFSET :skipped""",
            **where.params,
            **place,
            limit=page.limit,
            skipped=page.offset,
        )
        has_more = rows and offset + len(rows) < total
        cursor = tuple(rows[-1][-len(names) :]) if has_more else None
        return Found(tuple(read(row) for row in rows), total, offset, cursor)

    def _count(self, tx: Transaction, where: Conditions, more: str = "", **params: object) -> int:
        sql = f"SELECT count(*) FROM {self.counted or self.tables} WHERE {where.sql}{more}"
        return int(scalar(tx, sql, **where.params, **params))


_TABLES_WITH_INBOXES = ("rules", "plans", "webhooks")


def remove_inbox_references(tx: Transaction, inbox_id: str, account_id: str | None) -> None:
    """Remove a deleted inbox and its account from the rules, plans, webhooks and keys naming it."""
    for table in _TABLES_WITH_INBOXES:
        for row_id, stored in _rows_naming(tx, table, "inboxes", inbox_id):
            tx.put(
                f"""UPDATE {table}
                     SET inboxes = :remaining, visible_inboxes = coalesce(visible_inboxes, inboxes)
                     WHERE id = :id""",
                remaining=_without(stored, inbox_id),
                id=row_id,
            )
    _remove_from_keys(tx, "inboxes", inbox_id, inbox_id)
    if account_id is not None:
        _remove_from_keys(tx, "accounts", account_id, inbox_id)
    tx.announce("keys")


def _remove_from_keys(tx: Transaction, column: str, removed_id: str, inbox_id: str) -> None:
    for key_id, stored in _rows_naming(tx, "keys", column, removed_id):
        former = scalar(tx, "SELECT former_inboxes FROM keys WHERE id = :id", id=key_id)
        known = from_text(former) if former else []
        former = dumps(list(dict.fromkeys([*known, inbox_id])))
        remaining = {column: _without(stored, removed_id)}
        update(tx, "keys", {"id": key_id}, **remaining, former_inboxes=former)


def _rows_naming(tx: Transaction, table: str, column: str, removed_id: str) -> list[Row]:
    contains = CONTAINS.format(name="removed_id")
    rows = tx.all(
        f"SELECT id, {column} FROM {table} WHERE {column} {contains}",
        removed_id=pattern(dumps(removed_id)),
    )
    return [row for row in rows if isinstance(view_in(row[1]), Only)]


def _without(stored: str, removed_id: str) -> str:
    return dumps([one for one in from_text(stored) if one != removed_id])


OF_MESSAGES = (
    "bodies",
    "search_texts",
    "message_labels",
    "message_mailboxes",
    "attachments",
    "outbox",
)
"""The tables of rows that belong to a message."""

BLOBS_AMONG = """
    SELECT raw FROM messages WHERE raw {among}
    UNION SELECT sha256 FROM attachments WHERE sha256 {among}
"""
BLOBS_AFTER = """
    SELECT raw, size_bytes FROM messages WHERE raw > :after
    UNION
    SELECT sha256, size FROM attachments WHERE sha256 > :after
    ORDER BY 1 LIMIT :limit
"""


def used_blobs(tx: Transaction, keys: Sequence[BlobKey]) -> frozenset[BlobKey]:
    """The keys that a message or an attachment uses."""
    return frozenset(row[0] for row in all_among(tx, BLOBS_AMONG, keys))


def unused_of(tx: Transaction, keys: Sequence[BlobKey]) -> tuple[BlobKey, ...]:
    """The keys that nothing uses."""
    used = used_blobs(tx, keys)
    return tuple(key for key in dict.fromkeys(keys) if key not in used)


def blobs_after(tx: Transaction, after: BlobKey, limit: int) -> list[tuple[BlobKey, int]]:
    """The next used blobs in the order of their keys, with their sizes."""
    return [(row[0], row[1]) for row in tx.all(BLOBS_AFTER, after=after, limit=limit)]
