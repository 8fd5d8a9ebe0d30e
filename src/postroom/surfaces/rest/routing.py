"""Endpoints: their paths, and finding the one that a request names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, unquote_to_bytes

from starlette.types import Scope

from postroom.calls.context import RequestContext
from postroom.calls.operation import Operation
from postroom.calls.request import argument_names
from postroom.errors import Malformed

Place = Literal["path", "query", "body", "raw", "headers"]
"""Where an argument is given; `raw` is the body as it is, `headers` all of them."""

NOTHING_HERE = "there is nothing at this path"
WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE"})


@dataclass(frozen=True)
class Route:
    """A row of the table.

    `statuses` chooses the status by the `status` of the result. `raw` names the argument that is
    the body itself. `query` names arguments that stand in the query though there is a body.
    `headers` lets a header give an argument. `when` chooses this row if a query has this argument.
    `single` means that the path names the one message the action is about: if it failed, the
    request failed. `produces` is the media type of a download. `posted` are the media types of
    what a provider posts to us, for which it has no key: its argument `headers` gets the headers it
    came with, and `expect` says by these how many bytes may come.
    """

    method: str
    path: str
    operation: Operation[Any, Any]
    status: int = 200
    statuses: Mapping[str, int] = field(default_factory=dict)
    raw: str | None = None
    query: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    when: str | None = None
    single: bool = False
    produces: str = "*/*"
    posted: tuple[str, ...] = ()
    expect: Callable[[RequestContext, str, Mapping[str, str]], int] | None = None

    @cached_property
    def path_arguments(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.path))

    @cached_property
    def places(self) -> dict[str, Place]:
        """Where each argument of the operation is given."""
        return {name: self._place(name) for name in argument_names(self.operation.request)}

    def _place(self, name: str) -> Place:
        if name in self.path_arguments:
            return "path"
        if name == self.raw:
            return "raw"
        if name == "headers" and self.posted:
            return "headers"
        return "query" if name in self.query or self.method in WITHOUT_BODY else "body"

    @cached_property
    def has_json_body(self) -> bool:
        return "body" in self.places.values()

    @property
    def takes_body(self) -> bool:
        """Whether a body is looked at, even if no argument is in it."""
        return self.has_json_body or self.method not in WITHOUT_BODY

    def at(self, place: Place) -> list[str]:
        """The arguments that are given in one place."""
        return [name for name, where in self.places.items() if where == place]


T = TypeVar("T")


@dataclass(slots=True)
class Paths(Generic[T]):
    """A tree of segments. A fixed segment wins over a variable one."""

    here: T | None = None
    fixed: dict[str, Paths[T]] = field(default_factory=dict)
    variable: tuple[str, Paths[T]] | None = None

    def put(self, path: str, what: T) -> None:
        """Place something at a path such as `/v1/messages/{message_id}`."""
        node = self
        for segment in path.strip("/").split("/"):
            node = node._child(segment)
        node.here = what

    def _child(self, segment: str) -> Paths[T]:
        if not segment.startswith("{"):
            return self.fixed.setdefault(segment, Paths())
        if self.variable is None:
            self.variable = (segment.strip("{}"), Paths())
        assert self.variable[0] == segment.strip("{}"), f"two names for one segment: {segment}"
        return self.variable[1]

    def find(self, segments: Sequence[str]) -> tuple[T | None, dict[str, str]]:
        """What is at a path, with the values of its variable segments."""
        node, values = self, {}
        for segment in segments:
            if segment in node.fixed:
                node = node.fixed[segment]
            elif node.variable is not None and segment:
                values[node.variable[0]] = segment
                node = node.variable[1]
            else:
                return None, {}
        return node.here, values


def segments_of(scope: Scope) -> list[str]:
    """The segments as the client wrote them: an encoded slash is not a border.

    Raises:
        Malformed: a segment is not UTF-8.
    """
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    try:
        return [unquote_to_bytes(part).decode() for part in raw.split(b"?")[0].split(b"/")[1:]]
    except UnicodeDecodeError:
        raise Malformed("the path is not UTF-8; encode it before the percent signs") from None


def names_of(routes: Iterable[Route]) -> dict[str, str]:
    """What each operation is called over REST; of several endpoints, the first."""
    names: dict[str, str] = {}
    for route in routes:
        names.setdefault(route.operation.name, f"{route.method} {route.path}")
    return names
