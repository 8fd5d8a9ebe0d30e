"""Parameters and request bodies in OpenAPI."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from postroom.calls.request import Accepts, Constraint, Request, argument_fields
from postroom.surfaces.rest.routes import Route
from postroom.surfaces.schema import Schema, field_schema

NO_NUL = r"^[^\x00]*$"


def object_schema(model: type[Request], names: Iterable[str]) -> Schema:
    """Some arguments of an operation as a JSON object."""
    infos = {name: argument_fields(model)[name] for name in names}
    required = [name for name, info in infos.items() if info.is_required()]
    held = [t.schema for t in model.constraints if set(t.arguments) <= infos.keys()]
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
    """One argument, as exact as its types and their metadata allow."""
    return _with_constraints(field_schema(info), info.annotation, info.metadata)


_OF_FIELD = ("description", "examples", "minProperties")
"""What is said of an argument that is an object, besides its members."""


def _with_constraints(schema: Schema, annotation: Any, metadata: Sequence[Any]) -> Schema:
    kind, inner = _without_none(annotation)
    for accepts in (item for item in (*inner, *metadata) if isinstance(item, Accepts)):
        schema = {k: v for k, v in {**schema, **accepts.schema}.items() if v is not None}
    if get_origin(kind) is list:
        items = _with_constraints(schema["items"], get_args(kind)[0], ())
        return {**schema, "items": items}
    if isinstance(kind, type) and issubclass(kind, Request):
        return {
            **object_schema(kind, argument_fields(kind)),
            **{name: schema[name] for name in _OF_FIELD if name in schema},
            "title": kind.model_config.get("title", kind.__name__),
        }
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


_RAW_TYPES = ("message/rfc822", "application/octet-stream")
_LAST = {"limit": 1, "offset": 2, "next": 3}
"""Arguments of pages come after the other arguments."""
_HEADER_TEXT = "^[!-~](?:[ -~]*[!-~])?$"


@dataclass(frozen=True, slots=True)
class Group:
    """Arguments of a query that rules hold together."""

    name: str
    arguments: tuple[str, ...]
    rules: tuple[Schema, ...]


def parameters(rows: Sequence[Route]) -> list[Schema]:
    """The parameters of one or several rows at the same path and method.

    Those that rules hold together are one object, written out in the query as its members are:
    OpenAPI knows no other way to say such a rule.
    """
    infos = argument_fields(rows[-1].operation.request)
    path = [_parameter("path", name, argument_schema(infos[name])) for name in rows[-1].at("path")]
    fields, required, groups = _query(rows)
    grouped = {name for group in groups for name in group.arguments}
    plain = [
        _parameter("query", name, schema, required=name in required)
        for name, schema in fields.items()
        if name not in grouped
    ]
    objects = [_group_parameter(group, fields, required) for group in groups]
    listed = sorted([*reversed(objects), *plain], key=lambda p: _LAST.get(p["name"], 0))
    return [*path, *listed, *_headers(rows[-1])]


def _query(rows: Sequence[Route]) -> tuple[dict[str, Schema], set[str], list[Group]]:
    fields: dict[str, Schema] = {}
    required: set[str] = set()
    constraints: list[Constraint] = []
    for row in rows:
        model = row.operation.request
        infos = {name: argument_fields(model)[name] for name in row.at("query")}
        fields |= {name: argument_schema(info) for name, info in infos.items()}
        required |= {name for name, info in infos.items() if info.is_required()}
        constraints += [t for t in model.constraints if set(t.arguments) <= infos.keys()]
        if name := row.when:
            # Without it, another row answers.
            fields[name].pop("default", None)
            depends = {argument: [name] for argument in infos if argument != name}
            constraints.append(Constraint(name, tuple(infos), {"dependentRequired": depends}))
    return fields, required, list(_groups(constraints))


def _groups(constraints: Iterable[Constraint]) -> Iterator[Group]:
    """Rules about the same arguments belong to one group."""
    left = [Group(t.name, t.arguments, (dict(t.schema),)) for t in constraints]
    while left:
        group, *left = left
        while others := [o for o in left if set(o.arguments) & set(group.arguments)]:
            left.remove(others[0])
            names = tuple(dict.fromkeys(others[0].arguments + group.arguments))
            group = Group(others[0].name, names, group.rules + others[0].rules)
        yield group


def _group_parameter(group: Group, fields: dict[str, Schema], required: set[str]) -> Schema:
    names = [name for name in group.arguments if name in required]
    schema: Schema = {
        "type": "object",
        "properties": {name: fields[name] for name in group.arguments},
        **({"required": names} if names else {}),
        "additionalProperties": False,
        **({"allOf": rules} if (rules := [rule for rule in group.rules if rule]) else {}),
    }
    # Without any of its members, it breaks a rule whose alternatives all require one.
    alternatives = [rule["anyOf"] for rule in group.rules if "anyOf" in rule]
    is_required = bool(names) or any(
        all("required" in a for a in any_of) for any_of in alternatives
    )
    parameter = _parameter("query", group.name, schema, required=is_required)
    return {**parameter, "style": "form", "explode": True}


def _headers(route: Route) -> list[Schema]:
    infos = argument_fields(route.operation.request)
    return [
        _parameter("header", header, {**argument_schema(infos[name]), "pattern": _HEADER_TEXT})
        for header, name in route.headers.items()
    ]


def _parameter(location: str, name: str, schema: Schema, *, required: bool = False) -> Schema:
    described = {"description": schema["description"]} if "description" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "description"}
    must = {"required": True} if required or location == "path" else {}
    return {"name": name, "in": location, **described, **must, "schema": inner}


def request_body(route: Route) -> dict[str, Any]:
    """The body of one row, as the member of an operation; none if it takes none."""
    infos = argument_fields(route.operation.request)
    if route.raw:
        schema: Schema = {"type": "string", "format": "binary", "minLength": 1}
        if route.posted:
            schema = {"type": "object"}
        content = {kind: {"schema": schema} for kind in route.posted or _RAW_TYPES}
        text = infos[route.raw].description
        return {"requestBody": {"description": text, "required": True, "content": content}}
    if not route.has_json_body:
        return {}
    schema = object_schema(route.operation.request, route.at("body"))
    required = "required" in schema or any("anyOf" in rule for rule in schema.get("allOf", ()))
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": required, "content": content}}
