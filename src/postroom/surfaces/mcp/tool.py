"""Tools: a name, an operation, the schema of its arguments, its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from postroom.calls.operation import Operation
from postroom.calls.request import argument_fields
from postroom.errors import InvalidInput, MailError, ProviderError, RateLimited, Unavailable
from postroom.model.key import Scope
from postroom.surfaces.mcp.tool_listing import NAMESPACES, OR
from postroom.surfaces.schema import Schema, request_schema, result_schema
from postroom.surfaces.to_json import to_json

_KINDS = {
    "INVALID_REQUEST": ("invalid_input", "malformed", "conflict", "too_large", "too_slow"),
    "PERMISSION_DENIED": ("unauthenticated", "forbidden", "write_disabled"),
    "NOT_FOUND": ("not_found", "feature_disabled"),
    "RATE_LIMIT_EXCEEDED": ("rate_limited",),
    "PROVIDER_ERROR": ("provider_error", "provider_auth", "provider_timeout"),
    "INTERNAL_ERROR": ("unavailable", "storage_full", "internal"),
}
CODES = {kind: code for code, kinds in _KINDS.items() for kind in kinds}
"""From our kinds to the codes of contract 001."""


def explain_error(error: MailError) -> dict[str, Any]:
    """The body of a failed call: what is wrong, in a form that a program can read too."""
    details: dict[str, Any] = {"kind": error.code, **to_json(error.details)}
    if error.retryable:
        details["retryable"] = True
    body: dict[str, Any] = {"code": CODES[error.code], "message": str(error), "details": details}
    if isinstance(error, ProviderError):
        body["provider_error"] = to_json(error.details)
    if isinstance(error, (RateLimited, Unavailable)):
        body["retry_after"] = error.retry_after
    return {"error": body}


Body = dict[str, Any]


def _unchanged(body: Body, _seconds: float = 0) -> Body:
    return body


@dataclass(frozen=True)
class Tool:
    """An operation as an MCP tool.

    Arguments: `rename` maps an argument of the tool to that of the operation. `hide` names
    arguments that are accepted but not listed, `pin` those with a fixed value, which a caller
    cannot set. `other_tools` maps an argument that belongs to another tool to that tool.
    `descriptions` replaces descriptions. `shown_defaults` names the switches whose default (off) is
    listed, because the contract states it.

    Results: `shape_result` and `explain` bring results and errors into the form of the contract,
    `shape_schema` does the same to the schema, and `add_meta` adds fields to both, given the
    duration in seconds. `words` maps names of other toolsets to those of this one, for errors.
    `listed_fields` names the fields of a result that the schema lists. A result that is too long is
    truncated, and `next_step` says how to read the rest; one that is `never_truncated` is not,
    except for its member `cut`.

    A tool `is_open_world` if its data is not stored in Postroom. A setting can disable a `feature`
    and its tools. A tool that `is_brief` is listed without a schema of results, nested schemas,
    limits of numbers, and hints that are the default of the protocol; its errors name a field once.
    """

    name: str
    title: str
    operation: Operation[Any, Any]
    _: KW_ONLY
    description: str | None = None
    is_idempotent: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    hide: frozenset[str] = frozenset()
    pin: Mapping[str, Any] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    other_tools: Mapping[str, str] = field(default_factory=dict)
    shown_defaults: frozenset[str] = frozenset()
    listed_fields: tuple[str, ...] = ()
    shape_result: Callable[[Body], Body] = _unchanged
    explain: Callable[[MailError], Body] = explain_error
    words: Mapping[str, str] = field(default_factory=dict)
    add_meta: Callable[[Body, float], Body] = _unchanged
    shape_schema: Callable[[Body], Body] = _unchanged
    next_step: str = "request less: a smaller limit, or fewer extras"
    never_truncated: bool = False
    cut: str = ""
    is_open_world: bool = False
    feature: str | None = None
    is_brief: bool = False

    @property
    def is_read_only(self) -> bool:
        return self.operation.scope is Scope.READ

    @property
    def needs(self) -> frozenset[str]:
        """The rights that a caller needs for the tool; see `rights_of`."""
        of_memories = "namespace" in self.operation.request.model_fields
        scopes = filter(None, (self.operation.scope, self.operation.other_scope))
        return frozenset((OR.join(scopes), *((NAMESPACES,) if of_memories else ())))

    @property
    def entry(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        hints = self.annotations
        if self.is_brief:
            hints = {name: on for name, on in hints.items() if on != _DEFAULT_HINTS.get(name)}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description or self.operation.description,
            "inputSchema": input_schema(self),
            **({} if self.is_brief else {"outputSchema": output_schema(self)}),
            "annotations": hints,
        }

    @property
    def annotations(self) -> dict[str, bool]:
        """The hints of the protocol, as the operation's scope has them.

        Two of the four say nothing about a tool that only reads, and are left out; so are
        `readOnlyHint` and `idempotentHint` where they have the protocol's default, false.
        """
        if self.is_read_only:
            return {"readOnlyHint": True, "openWorldHint": self.is_open_world}
        return {
            "destructiveHint": self.operation.destroys,
            **({"idempotentHint": True} if self.is_idempotent else {}),
            "openWorldHint": self.is_open_world or self.operation.scope is Scope.SEND,
        }

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the operation.

        Raises InvalidInput for arguments that the tool does not have.
        """
        for name in given:
            if name in self.other_tools:
                raise InvalidInput(f"{name}: {self.name} takes none; use {self.other_tools[name]}")
            if name in self.pin:
                raise InvalidInput(f"{name}: {self.name} does not take it; drop it")
        renamed = {self.rename.get(name, name): value for name, value in given.items()}
        fields = argument_fields(self.operation.request)
        # Some clients send null for what the model leaves out.
        meant = {
            name: value
            for name, value in renamed.items()
            if value is not None or name not in fields or fields[name].default is None
        }
        return {**meant, **self.pin}


_DEFAULT_HINTS = {"destructiveHint": True, "openWorldHint": True}
_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems", "pattern")
"""Checked in every call, but a model learns nothing from them."""


def describe(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """The tools as `tools/list` shows them, in the order of the tables."""
    return [tool.entry for tool in tools]


def input_schema(tool: Tool) -> Schema:
    """The arguments of a tool: flat, each with a description and an example."""
    schema = request_schema(tool.operation.request)
    words = {operations: tools for tools, operations in tool.rename.items()}
    unseen = tool.hide | set(tool.pin)
    properties = {
        words.get(name, name): _argument(tool, name, argument)
        for name, argument in schema["properties"].items()
        if name not in unseen
    }
    required = [words.get(n, n) for n in schema.get("required", ()) if n not in unseen]
    slim: Schema = {"type": "object", "properties": properties}
    return {**slim, "required": required} if required else slim


def _argument(tool: Tool, argument: str, schema: Schema) -> Schema:
    """An argument without the bounds; what is inside a list is explained by the list's example."""
    shows_default = argument in tool.shown_defaults
    slim = {name: value for name, value in schema.items() if name not in _BOUNDS}
    slim |= {"description": tool.descriptions[argument]} if argument in tool.descriptions else {}
    if slim.get("minimum") in (0, 1):
        del slim["minimum"]
    if "maximum" in slim and (tool.is_brief or slim["maximum"] >= 2**53):
        del slim["maximum"]
    if slim.get("default") is False and not shows_default:
        del slim["default"]
    if "items" in slim:
        slim["items"] = _outline(slim["items"])
        if tool.is_brief:
            slim["items"] = {"type": slim["items"]["type"]}
    if slim.get("type") == "object":
        slim = {name: slim[name] for name in ("type", "description", "examples")}
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
    """The answer of a tool. Nothing is required and more is allowed, so that an error fits too.

    A field that may be null stays unnamed: several clients refuse a list of types.
    """
    schema = result_schema(tool.operation.result, lambda _: {"type": "object"})["properties"]
    page = [name for name in _PAGE if name != "next_cursor" or "cursor" not in tool.hide]
    names = tool.listed_fields or (page if "results" in schema else schema)
    shown = {name: schema[name] for name in names if name in schema}
    typed = {name: part for name, part in shown.items() if isinstance(part.get("type"), str)}
    # A response shows its values, so the list of tools need not contain them.
    properties = {
        name: {key: item for key, item in _outline(value).items() if key != "enum"}
        for name, value in typed.items()
    }
    return tool.shape_schema({"type": "object", "properties": properties})
