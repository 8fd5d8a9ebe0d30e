"""How tools describe themselves: small, because every agent pays for the list in every session."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.schema import Schema, request_schema, result_schema

_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems", "pattern")
"""Checked at the door, but a model learns nothing from them."""


def describe(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The tools as `tools/list` shows them, in the order of the tables."""
    return [_entry(tool) for tool in tools]


def _entry(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description or tool.operation.description,
        "inputSchema": input_schema(tool),
        "outputSchema": output_schema(tool),
        "annotations": tool.annotations,
    }


def input_schema(tool: Tool) -> Schema:
    """The arguments of a tool: flat, each with a description and an example."""
    schema = request_schema(tool.operation.request)
    words = {operations: tools for tools, operations in tool.rename.items()}
    unseen = tool.hide | set(tool.pin)
    properties = {
        words.get(name, name): _argument(argument, tells_off=name in tool.tell_default)
        for name, argument in schema["properties"].items()
        if name not in unseen
    }
    required = [words.get(n, n) for n in schema.get("required", ()) if n not in unseen]
    slim: Schema = {"type": "object", "properties": properties}
    return {**slim, "required": required} if required else slim


def _argument(schema: Schema, *, tells_off: bool) -> Schema:
    """An argument without the bounds; what is inside a list is explained by the list's example."""
    slim = {name: value for name, value in schema.items() if name not in _BOUNDS}
    if slim.get("minimum") in (0, 1):
        del slim["minimum"]
    if slim.get("maximum", 0) >= 2**53:
        del slim["maximum"]
    if slim.get("default") is False and not tells_off:
        del slim["default"]
    if "items" in slim:
        slim["items"] = _outline(slim["items"])
    return slim


def _outline(schema: Schema) -> Schema:
    """A shape by its types alone."""
    slim = {"type": schema["type"]}
    if "enum" in schema:
        slim["enum"] = schema["enum"]
    if "items" in schema:
        slim["items"] = _outline(schema["items"])
    if "properties" in schema:
        slim["properties"] = {n: _outline(s) for n, s in schema["properties"].items()}
    return slim


_PAGE = ("results", "total", "has_more", "next_cursor")


def output_schema(tool: Tool) -> Schema:
    """The answer of a tool. Nothing is required, so that an error fits too.

    A field that may be null stays unnamed: several clients refuse a list of types.
    """
    schema = result_schema(tool.operation.result, lambda _: {"type": "object"})["properties"]
    page = [name for name in _PAGE if name != "next_cursor" or "cursor" not in tool.hide]
    names = tool.answers or (page if "results" in schema else schema)
    typed = {name: schema[name] for name in names if isinstance(schema[name].get("type"), str)}
    properties = {name: _without_words(_outline(value)) for name, value in typed.items()}
    shape = tool.outline({"type": "object", "properties": properties})
    shape["properties"]["error"] = {"type": "object"}
    return shape


def _without_words(schema: Schema) -> Schema:
    """An answer shows its words itself; which ones there are need not stand in every list."""
    return {name: value for name, value in schema.items() if name != "enum"}
