"""JSON Schema of requests and results, derived from their types.

Requests come out flat, without anyOf, $ref or lists of types: several MCP clients refuse those.
Nothing here builds a pydantic validator, so that listing the tools costs a start almost nothing.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import is_dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from postroom.calls.request import Request, argument_fields
from postroom.model.mail.message import MessageRow
from postroom.model.memory import MemoryHit
from postroom.model.page import is_page
from postroom.model.view import View
from postroom.surfaces.to_json import ROWS, carries_mail, extra_page_fields, public_fields

Schema = dict[str, Any]
_PLAIN: dict[Any, Schema] = {
    SecretStr: {"type": "string"},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string"},
    bytes: {"type": "string"},
    Any: {},
}


def request_schema(model: type[Request]) -> Schema:
    """The arguments of an operation as one flat object."""
    infos = argument_fields(model)
    schema: Schema = {
        "type": "object",
        "properties": {name: field_schema(info) for name, info in infos.items()},
    }
    required = [name for name, info in infos.items() if info.is_required()]
    if required:
        schema["required"] = required
    return {**schema, "additionalProperties": False}


def field_schema(info: FieldInfo) -> Schema:
    """One argument: its type, bounds, description, default and example."""
    schema = _argument(info.annotation) | _bounds(info.metadata, info.annotation)
    if info.description:
        schema["description"] = info.description
    if not info.is_required() and info.default not in (None, [], ""):
        schema["default"] = info.default
    if info.examples:
        schema["examples"] = info.examples
    return schema


def _argument(annotation: Any) -> Schema:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _argument(args[0]) | _annotations(args[1:], args[0])
    if origin in (Union, types.UnionType):
        return _argument(next(arg for arg in args if arg is not type(None)))
    if origin is Literal:
        return {"type": "string", "enum": list(args)}
    if origin is list:
        return {"type": "array", "items": _argument(args[0])}
    if isinstance(annotation, type) and issubclass(annotation, Request):
        return request_schema(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {"type": "string", "enum": [item.value for item in annotation]}
    return dict(_PLAIN[annotation])


def _annotations(metadata: tuple[Any, ...], annotation: Any) -> Schema:
    schema: Schema = {}
    for item in metadata:
        found = item.metadata if isinstance(item, FieldInfo) else [item]
        schema |= _bounds(found, annotation)
    return schema


def _bounds(metadata: list[Any], annotation: Any) -> Schema:
    schema: Schema = {}
    size = "Items" if is_list(annotation) else "Length"
    for item in metadata:
        if isinstance(item, FieldInfo):
            schema |= _bounds(item.metadata, annotation)
        elif isinstance(item, Ge):
            schema["minimum"] = item.ge
        elif isinstance(item, Le):
            schema["maximum"] = item.le
        elif isinstance(item, MinLen):
            schema["min" + size] = item.min_length
        elif isinstance(item, MaxLen):
            schema["max" + size] = item.max_length
        elif pattern := getattr(item, "pattern", None):
            schema["pattern"] = pattern
    return schema


def is_list(annotation: Any) -> bool:
    """Whether an argument of this type is a list."""
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return any(is_list(arg) for arg in get_args(annotation))
    return get_origin(annotation) is list


def result_schema(result: Any, refer: Callable[[type], Schema]) -> Schema:
    """The answer of an operation; *refer* writes the references to types inside it."""
    if isinstance(result, types.UnionType):
        return _either([result_schema(kind, refer) for kind in get_args(result)])
    schema = _page_schema(result, refer) if is_page(result) else shape(result, refer)
    if carries_mail(result):
        schema["properties"] = {"untrusted": {"type": "boolean"}, **schema["properties"]}
    return schema


def _either(schemas: list[Schema]) -> Schema:
    """The schema of a union: the properties of all members.

    Only properties that every member requires are required.
    """
    properties: Schema = {}
    for schema in reversed(schemas):
        properties = {**schema["properties"], **properties}
    sure = set(schemas[0]["required"]).intersection(*(s["required"] for s in schemas[1:]))
    return {"type": "object", "properties": properties, "required": sorted(sure)}


def _page_schema(result: Any, refer: Callable[[type], Schema]) -> Schema:
    number = {"type": "integer"}
    names = ("count", "total", "total_count", "limit", "offset")
    kind = get_origin(result)
    hints = typing.get_type_hints(kind)
    more = {name: _value(hints[name], refer, optional=False) for name in extra_page_fields(kind)}
    is_searched = get_args(result)[0] in (MessageRow, MemoryHit)
    searched = {"hint": {"type": "string"}} if is_searched else {}
    return {
        "type": "object",
        "properties": {
            "results": {"type": "array", "items": refer(get_args(result)[0])},
            **dict.fromkeys(names, number),
            "has_more": {"type": "boolean"},
            "next_cursor": {"type": "string"},
            **searched,
            **more,
        },
        "required": ["results", *names, "has_more", *more],
    }


def shape(kind: Any, refer: Callable[[type], Schema]) -> Schema:
    """A dataclass as an object; what a row may leave out is not required."""
    if kind is type(None):
        return {"type": "object", "properties": {}}
    hints = typing.get_type_hints(kind)
    shown = public_fields(kind)
    always = [name for name, optional in shown if not optional]
    if issubclass(kind, ROWS):
        always = [name for name in always if hints[name] in (bool, int, datetime)] + ["id"]
    return {
        "type": "object",
        "properties": {
            name.removesuffix("_"): _value(hints[name], refer, optional=optional)
            for name, optional in shown
        },
        "required": sorted(set(always), key=[name for name, _ in shown].index),
    }


def _value(hint: Any, refer: Callable[[type], Schema], *, optional: bool) -> Schema:
    if hint == View:
        hint = tuple[str, ...] | None
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = _value(next(a for a in args if a is not type(None)), refer, optional=optional)
        if optional or "type" not in inner:
            return inner
        return {**inner, "type": [inner["type"], "null"]}
    if origin is Literal:
        return {"type": "string", "enum": list(args)}
    if origin in (tuple, list):
        return {"type": "array", "items": _value(args[0], refer, optional=optional)}
    if origin is dict:
        return {"type": "object"}
    if is_dataclass(hint) and isinstance(hint, type):
        return refer(hint)
    if hint is datetime:
        return {"type": "string", "format": "date-time"}
    return dict(_PLAIN[hint])
