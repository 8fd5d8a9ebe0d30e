"""Arguments of a call as a request: numbers written as text, and a problem for each bad field."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from postroom.calls.request import PATTERN_PROBLEMS, Request, argument_names
from postroom.errors import InvalidInput

R = TypeVar("R", bound=Request)


def parse_request(model: type[R], arguments: Mapping[str, Any]) -> R:
    """Build a request. Raises InvalidInput with `problems`, one for each bad field."""
    problems: list[dict[str, object]] = []
    given = _with_scalars(model, arguments, problems)
    if not problems:
        try:
            return model.model_validate(given, by_alias=True, by_name=False)
        except ValidationError as error:
            problems = [_problem(model, item) for item in error.errors(include_url=False)]
    text = "; ".join(
        f"{p['field']}: {p['problem']}" if p["field"] else str(p["problem"]) for p in problems
    )
    raise InvalidInput(text, problems=problems)


def _with_scalars(
    model: type[Request],
    arguments: Mapping[str, Any],
    problems: list[dict[str, object]],
    at: str = "",
) -> dict[str, object]:
    """The arguments with numbers and booleans in place of their texts, also inside of objects."""
    types, given = _scalar_types(model), dict[str, object]()
    for name, value in arguments.items():
        kind = types.get(name)
        if isinstance(value, dict) and kind is not None and issubclass(kind, Request):
            given[name] = _with_scalars(kind, value, problems, f"{at}{name}.")
            continue
        try:
            given[name] = _scalar(kind, value)
        except ValueError as error:
            problems.append({"field": at + name, "problem": str(error)})
    return given


@cache
def _scalar_types(model: type[Request]) -> dict[str, type]:
    """The type of each argument that is a whole number, a boolean or an object."""
    found: dict[str, type] = {}
    for name, info in model.model_fields.items():
        types = [t for t in (info.annotation, *get_args(info.annotation)) if isinstance(t, type)]
        kinds = [kind for kind in (bool, int, Request) if any(issubclass(t, kind) for t in types)]
        if kinds:
            found[info.alias or name] = next(t for t in types if issubclass(t, kinds[0]))
    return found


def _scalar(kind: type | None, value: object) -> object:
    """Convert numbers and booleans that are written as text. Raises ValueError."""
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
    """Whether a value contains NUL, which PostgreSQL cannot store in a text."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return any(map(_has_nul, value))
    return isinstance(value, str) and "\0" in value


def _problem(model: type[Request], item: Any) -> dict[str, object]:
    field = _path(item["loc"])
    message = str(item["msg"]).removeprefix("Value error, ")
    problem = re.sub(r"^\w+ should (be|have)\b", r"must \1", message)
    problem = _PLAIN.get(str(item["type"]), problem)
    if item["type"] == "extra_forbidden":
        *outer, name = item["loc"]
        problem = _unknown(str(name), argument_names(_model_at(model, outer)))
    elif item["type"] == "missing":
        problem = "is required"
    elif item["type"] == "string_pattern_mismatch":
        problem = PATTERN_PROBLEMS.get(item["ctx"]["pattern"], problem)
    return {"field": field, "problem": problem}


def _model_at(model: type[Request], place: Iterable[str | int]) -> type[Request]:
    """The model of the object at this place in a request."""
    for name in place:
        info = next((i for n, i in model.model_fields.items() if name in (n, i.alias)), None)
        model = next(_models_in(info.annotation), model) if info else model
    return model


def _models_in(annotation: Any) -> Iterator[type[Request]]:
    """The models in an annotation, such as that in `list[Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Request):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


_PLAIN = {"list_type": "must be a list", "model_type": "must be an object"}


def _path(place: tuple[str | int, ...]) -> str:
    """Where a value stands: `attachments[0].filename`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "".join(parts).removeprefix(".")


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"unknown argument; did you mean {close[0]}?"
    return f"unknown argument; known are {', '.join(known)}" if known else "takes no arguments"
