"""What every request shares: strict fields, pages, and errors that say what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from postroom.errors import InvalidInput
from postroom.operations import forms

R = TypeVar("R", bound="Request")


@dataclass(frozen=True, slots=True, eq=False)
class Accepts:
    """What JSON Schema can say of a value beyond type and bounds: OpenAPI is to be exact.

    None takes a keyword away. Compared by identity, since an annotation must have a hash.
    """

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Repeatable:
    """Marks a text that may be a list as well: then a query may name it more than once."""


@dataclass(frozen=True, slots=True)
class Together:
    """What holds between several arguments, as JSON Schema. A validator is what enforces it."""

    name: str
    arguments: tuple[str, ...]
    schema: Mapping[str, Any]


def one_of(name: str, *arguments: str, may_be_empty: bool = False) -> Together:
    """At least one of some arguments is given; null is as good as not given."""
    given = {"not": {"type": "null"}} if may_be_empty else {"minLength": 1, "minItems": 1}
    branches = [{"required": [a], "properties": {a: given}} for a in arguments]
    return Together(name, arguments, {"anyOf": branches})


def not_both(name: str, first: str, second: str) -> Together:
    """Two texts exclude each other; null and the empty text are as good as not given."""
    given = {a: {"not": {"type": "null"}, "minLength": 1} for a in (first, second)}
    return Together(
        name, (first, second), {"not": {"required": [first, second], "properties": given}}
    )


class Request(BaseModel):
    """What a caller asks. The docstring is the tool's description and the command's help."""

    together: ClassVar[tuple[Together, ...]] = ()
    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, validate_by_alias=True, validate_by_name=True
    )


def _nothing_if_empty(value: object) -> object:
    return None if value == "" else value


def _moment(value: object) -> object:
    """Read RFC 3339 or a bare date; without an offset it is UTC."""
    if value is None or value == "" or isinstance(value, datetime):
        return value or None
    written = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    try:
        seconds = _seconds(*written.groups()) if written else None
    except ValueError:
        seconds = None
    if seconds is None:
        raise ValueError("write it as 2026-01-31 or 2026-01-31T09:30:00Z")
    return datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC)


def _seconds(date: str, minutes: str | None, second: str, fraction: str, offset: str | None) -> int:
    """Seconds since 1970, rounded up since stored times are whole: both bounds keep their meaning.

    RFC 3339 knows a year 0, which `datetime` does not, and a second 60.
    """
    year = max(int(date[:4]), 1)
    moment = datetime.fromisoformat(f"{year:04}{date[4:]}T{minutes or '00:00'}:00+00:00")
    seconds = int(moment.timestamp()) + int(second or 0) + (int(fraction or 0) > 0)
    if offset in (None, "Z", "z"):
        return seconds
    sign = -1 if offset.startswith("-") else 1
    return seconds - sign * (int(offset[1:3]) * 3600 + int(offset[-2:]) * 60)


_WRITTEN = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](\d\d:\d\d)(?::([0-5]\d|60)(?:\.(\d{1,100}))?)?"
    r"([Zz]|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?)?",
    re.ASCII,
)
_FIRST, _LAST = -62135596800, 253402300799


def as_number(value: object) -> object:
    """A number that is written as text; anything else as it is."""
    return float(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value


_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?")

Id = Annotated[str, Field(min_length=1, max_length=64), Accepts({"pattern": "^[A-Za-z0-9_-]+$"})]
OptionalId = Annotated[
    Annotated[str, Field(max_length=64)] | None,
    BeforeValidator(_nothing_if_empty),
    Accepts({"pattern": "^[A-Za-z0-9_-]*$"}),
]
Moment = Annotated[
    datetime | None,
    BeforeValidator(_moment),
    Accepts({"anyOf": [{"format": "date-time"}, {"format": "date"}, {"maxLength": 0}]}),
]
Limit = Annotated[int, Field(ge=1, le=100, description="Results at most.", examples=[20])]
Offset = Annotated[int, Field(ge=0, le=2**53, description="Results to pass over.", examples=[0])]
Cursor = Annotated[
    # Not empty: after the last page there is no next_cursor, and "" would begin all over again.
    Annotated[str, Field(min_length=1, max_length=16_384)] | None,
    Field(
        description="next_cursor of the page before.",
        examples=["WzE3Niw5XQ"],
    ),
    # Only we can make one, and what is not ours is refused: so there is no example either.
    Accepts(
        {
            "readOnly": True,
            "examples": None,
            "description": "next_cursor of the page before, as it is; instead of offset.",
        }
    ),
]


class Paged(Request):
    """A request for a slice of a list."""

    together: ClassVar[tuple[Together, ...]] = (
        # Alone, as a member of an object: only there `readOnly` has a meaning in OpenAPI.
        Together("next", ("cursor",), {}),
    )
    limit: Limit = 50
    offset: Offset = 0
    cursor: Cursor = None

    @model_validator(mode="after")
    def _offset_or_cursor(self) -> Self:
        if self.cursor and "offset" in self.model_fields_set:
            raise ValueError("cursor cannot be combined with offset; drop one")
        return self


def parse_request(model: type[R], arguments: Mapping[str, Any]) -> R:
    """Build a request from what a caller gave.

    Raises:
        InvalidInput: with `problems`, one for each bad field.
    """
    given: dict[str, object] = {}
    problems: list[dict[str, object]] = []
    for name, value in arguments.items():
        try:
            given[name] = _plain_value(_plain_kinds(model).get(name), value)
        except ValueError as error:
            problems.append({"field": name, "problem": str(error)})
    if not problems:
        try:
            return model.model_validate(given, by_alias=True, by_name=False)
        except ValidationError as error:
            problems = [_problem(model, item) for item in error.errors(include_url=False)]
    text = "; ".join(
        f"{p['field']}: {p['problem']}" if p["field"] else str(p["problem"]) for p in problems
    )
    raise InvalidInput(text, problems=problems)


@cache
def _plain_kinds(model: type[Request]) -> dict[str, type]:
    """The arguments that are whole numbers or booleans."""
    kinds = {
        info.alias or name: next((k for k in (bool, int) if _is(k, info.annotation)), None)
        for name, info in model.model_fields.items()
    }
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _is(kind: type, annotation: Any) -> bool:
    return kind in (annotation, *get_args(annotation))


def _plain_value(kind: type | None, value: object) -> object:
    """Numbers and booleans may come as text, but written in one way only. Raises ValueError."""
    if _has_nul(value):
        raise ValueError("must not contain the character NUL")
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind is int and isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    if kind is bool and not (value is None or isinstance(value, bool)):
        raise ValueError("must be true or false")
    if kind is int and isinstance(value, (bool, str)):
        raise ValueError("must be a whole number")
    return value


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,99})", re.ASCII)


def _has_nul(value: object) -> bool:
    """No database we use can be trusted with it in a text."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, list):
        return any(_has_nul(item) for item in value)
    if isinstance(value, dict):
        return any(_has_nul(item) for pair in value.items() for item in pair)
    return False


def argument_names(model: type[Request]) -> list[str]:
    """The names a caller uses: aliases where there are some."""
    return [info.alias or name for name, info in model.model_fields.items()]


def _problem(model: type[Request], item: Any) -> dict[str, object]:
    field = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return {"field": field, "problem": _unknown(field, argument_names(model))}
    if item["type"] == "missing":
        return {"field": field, "problem": "is required"}
    return {"field": field, "problem": _plain(item)}


def _plain(item: Any) -> str:
    if item["type"] == "string_pattern_mismatch" and item["ctx"]["pattern"] in forms.IN_WORDS:
        return forms.IN_WORDS[item["ctx"]["pattern"]]
    message = str(item["msg"]).removeprefix("Value error, ")
    return re.sub(r"^\w+ should (be|have)\b", r"must \1", message)


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"unknown argument; did you mean {close[0]}?"
    return f"unknown argument; known are {', '.join(known)}" if known else "takes no arguments"
