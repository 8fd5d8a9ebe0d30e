"""Conversion between rows and values: times as seconds, lists as JSON, caseless names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from postroom.model.approval import Hold
from postroom.model.inbox import Visible
from postroom.model.message import FLAGS
from postroom.model.view import EVERYTHING, Everything, Numbers, Only, View, view_of
from postroom.store.transaction import Transaction

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


@cache
def _insertion(table: str, columns: tuple[str, ...], end: str = "") -> str:
    values = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values}){end}"


def insert(tx: Transaction, table: str, /, **values: object) -> None:
    """Insert one row; the keywords are its columns."""
    tx.put(_insertion(table, tuple(values)), **values)


def insert_numbered(tx: Transaction, table: str, /, **values: object) -> int:
    """Insert one row, and return the number that it gets."""
    return int(scalar(tx, _insertion(table, tuple(values), " RETURNING number"), **values))


def insert_many(tx: Transaction, table: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows that have the same columns."""
    if rows:
        put_many(tx, _insertion(table, tuple(rows[0])), rows)


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
    among, params = any_of("id", visible.named)
    rows = tx.all(f"SELECT number FROM inboxes WHERE id {among}", **params)
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
