"""Endpoints: their paths, and where their arguments are given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from postroom.calls.context import RequestContext
from postroom.calls.operation import Operation
from postroom.calls.request import argument_names

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


def names_of(routes: Iterable[Route]) -> dict[str, str]:
    """What each operation is called over REST; of several endpoints, the first."""
    names: dict[str, str] = {}
    for route in routes:
        names.setdefault(route.operation.name, f"{route.method} {route.path}")
    return names
