"""What every request shares: strict fields, pages, and errors that say what to do."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from postroom.errors import InvalidInput

R = TypeVar("R", bound="Request")


class Request(BaseModel):
    """What a caller asks. The docstring is the tool's description and the command's help."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, validate_by_alias=True, validate_by_name=True
    )


def _nothing_if_empty(value: object) -> object:
    return None if value == "" else value


def _moment(value: object) -> object:
    """Read RFC 3339 or a bare date; without an offset it is UTC."""
    if not isinstance(value, str) or not value:
        return None if value == "" else value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("write it as 2026-01-31 or 2026-01-31T09:30:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return _whole_seconds(moment)


def _whole_seconds(moment: datetime) -> datetime:
    """Round up, since stored times are whole: both bounds then keep their meaning."""
    seconds = math.ceil((moment - _EPOCH).total_seconds())
    return datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62135596800, 253402300799

Id = Annotated[str, Field(min_length=1, max_length=64)]
OptionalId = Annotated[str | None, BeforeValidator(_nothing_if_empty), Field(max_length=64)]
Moment = Annotated[datetime | None, BeforeValidator(_moment)]
Limit = Annotated[
    int, Field(ge=1, le=100, description="Results at most.", examples=[20])
]
Offset = Annotated[
    int, Field(ge=0, le=2**53, description="Results to pass over.", examples=[0])
]
Cursor = Annotated[
    str | None,
    BeforeValidator(_nothing_if_empty),
    Field(
        max_length=512,
        description="next_cursor of the page before.",
        examples=["WzE3Niw5XQ"],
    ),
]


class Paged(Request):
    """A request for a slice of a list."""

    limit: Limit = 50
    offset: Offset = 0
    cursor: Cursor = None

    @model_validator(mode="after")
    def _offset_or_cursor(self) -> Self:
        if self.cursor and self.offset:
            raise ValueError("cursor cannot be combined with offset; drop one")
        return self


def parse_request(model: type[R], arguments: Mapping[str, Any]) -> R:
    """Build a request from what a caller gave.

    Raises:
        InvalidInput: with `problems`, one for each bad field.
    """
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        problems = [_problem(model, item) for item in error.errors(include_url=False)]
    text = "; ".join(
        f"{p['field']}: {p['problem']}" if p["field"] else str(p["problem"]) for p in problems
    )
    raise InvalidInput(text, problems=problems)


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
    message = str(item["msg"]).removeprefix("Value error, ")
    return message.replace("Input should be", "must be").replace("should have", "must have")


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"unknown argument; did you mean {close[0]}?"
    return f"unknown argument; known are {', '.join(known)}" if known else "takes no arguments"
