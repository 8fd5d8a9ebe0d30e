"""Arguments as JSON Schema that is exact: what fits it is accepted, what does not is refused."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from postroom.operations.request import Accepts, Request
from postroom.surfaces.schema import Schema, field_schema

NO_NUL = r"^[^\x00]*$"


def arguments(model: type[Request]) -> dict[str, FieldInfo]:
    """The fields of a request under the names that callers use."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def object_schema(model: type[Request], names: Iterable[str]) -> Schema:
    """Some arguments of an operation as a JSON object."""
    infos = {name: arguments(model)[name] for name in names}
    required = [name for name, info in infos.items() if info.is_required()]
    held = [t.schema for t in model.together if set(t.arguments) <= infos.keys()]
    return {
        "type": "object",
        "properties": {
            name: _nullable(info, argument_schema(info)) for name, info in infos.items()
        },
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **({"allOf": [dict(schema) for schema in held]} if held else {}),
    }


def argument_schema(info: FieldInfo) -> Schema:
    """One argument, as exact as its types and what stands beside them can say."""
    return _sharpen(field_schema(info), info.annotation, info.metadata)


def _sharpen(schema: Schema, annotation: Any, metadata: Sequence[Any]) -> Schema:
    kind, inner = _without_none(annotation)
    for accepts in (item for item in (*inner, *metadata) if isinstance(item, Accepts)):
        schema = {k: v for k, v in {**schema, **accepts.schema}.items() if v is not None}
    if get_origin(kind) is list:
        items = _sharpen(schema["items"], get_args(kind)[0], ())
        return {**schema, "items": items}
    if isinstance(kind, type) and issubclass(kind, Request):
        return {**object_schema(kind, arguments(kind)), "title": kind.__name__}
    if kind is str and not schema.keys() & {"pattern", "enum", "anyOf", "const"}:
        return {**schema, "pattern": NO_NUL}
    return schema


def _without_none(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type that matters, and what is said about it."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kind, said = _without_none(args[0])
        return kind, (*said, *args[1:])
    if origin in (Union, types.UnionType):
        return _without_none(next(arg for arg in args if arg is not type(None)))
    return annotation, ()


def _nullable(info: FieldInfo, schema: Schema) -> Schema:
    """In JSON, an argument whose default is None may be null."""
    if info.is_required() or info.default is not None:
        return schema
    wider = {**schema, "type": [schema["type"], "null"]}
    return {**wider, "enum": [*schema["enum"], None]} if "enum" in schema else wider
