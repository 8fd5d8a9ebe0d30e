"""Between rows and values: times as seconds, lists as JSON, names without case."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec

from postroom.model.inbox import Visible
from postroom.model.message import FLAGS
from postroom.store.transaction import Transaction

T = TypeVar("T")

to_text = msgspec.json.Encoder().encode
from_text = msgspec.json.Decoder().decode


def dumps(value: Any) -> str:
    """JSON as text."""
    return to_text(value).decode()


def seconds(moment: datetime) -> int:
    """A time as it is stored."""
    return int(moment.timestamp())


def moment(value: int) -> datetime:
    """A stored time as a value."""
    return datetime.fromtimestamp(value, UTC)


def caseless(name: str) -> str:
    """How names of labels and mailboxes compare: exactly, but without case."""
    return name.casefold()


def flag_bits(flags: Sequence[str]) -> int:
    """Flags as one number."""
    return sum(1 << FLAGS.index(flag) for flag in set(flags))


def flag_names(bits: int) -> tuple[str, ...]:
    """The flags that are set in a stored number."""
    return tuple(name for position, name in enumerate(FLAGS) if bits >> position & 1)


_LOT = 16
_MOST_KEPT = 200
"""Longer statements, as for all inboxes of a key, are made anew: they would fill the memory."""


class _Parameters(NamedTuple):
    """The names of some parameters, and how a statement has them as a list and as a table."""

    names: list[str]
    among: str
    each: str


def _parameters(name: str, count: int) -> _Parameters:
    return (_kept if count <= _MOST_KEPT else _made)(name, count)


def _made(name: str, count: int) -> _Parameters:
    names = [f"{name}{position}" for position in range(count)]
    among = ", ".join(f":{one}" for one in names) or "NULL"
    return _Parameters(names, f"IN ({among})", "VALUES " + ", ".join(f"(:{one})" for one in names))


_kept = lru_cache(256)(_made)


def any_of(name: str, values: Sequence[object]) -> tuple[str, dict[str, object]]:
    """`IN (…)` with one parameter for each value, and those parameters."""
    made = _parameters(name, len(values))
    return made.among, dict(zip(made.names, values, strict=True))


def each_of(name: str, values: Sequence[object]) -> tuple[str, dict[str, object]]:
    """`VALUES …` with one row for each value, and its parameters: a table to begin a join with."""
    made = _parameters(name, len(values))
    return made.each, dict(zip(made.names, values, strict=True))


def in_lots(values: Sequence[T]) -> list[T]:
    """The same, with the last repeated until there are as many as in other statements.

    The database knows a statement again.
    """
    return [*values, *[values[-1]] * (-len(values) % _LOT)]


def any_pair(name: str, values: Sequence[tuple[object, object]]) -> tuple[str, dict[str, object]]:
    """`IN (…)` for two columns at once."""
    pairs, names = _pairs(name, len(values))
    return f"IN (VALUES {pairs})", dict(zip(names, chain.from_iterable(values), strict=True))


@cache
def _pairs(name: str, count: int) -> tuple[str, list[str]]:
    """So many pairs of parameters, and the names of all."""
    names = [f"{name}{at}_{side}" for at in range(count) for side in (0, 1)]
    pairs = (f"(:{one}, :{other})" for one, other in zip(names[::2], names[1::2], strict=True))
    return ", ".join(pairs), names


CONTAINS = "LIKE :{name} ESCAPE '!'"
"""The database finds a string in a folded text sooner than we can read that text."""


def pattern(text: str) -> str:
    """What `CONTAINS` wants for a folded text."""
    for character in "!%_":
        text = text.replace(character, "!" + character)
    return f"%{text}%"


def is_storable(text: str) -> bool:
    """Whether a text can be in the database at all: NUL and half a character never are."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def visible_numbers(tx: Transaction, visible: Visible) -> list[int] | None:
    """The numbers of the inboxes a caller may see; None is all."""
    if visible is None:
        return None
    among, params = any_of("id", sorted(visible))
    return [row[0] for row in tx.all(f"SELECT number FROM inboxes WHERE id {among}", **params)]
