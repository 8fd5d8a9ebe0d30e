"""A row of the tools table: a name that an agent sees, bound to an operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import InvalidInput, MailError
from postroom.model.key import Scope
from postroom.operations.operation import Operation
from postroom.surfaces.mcp.explaining import explain_error

Body = dict[str, Any]


def _as_it_is(body: Body) -> Body:
    return body


def _unstamped(body: Body, _: float) -> Body:
    return body


@dataclass(frozen=True, kw_only=True)
class Tool:
    """What an agent sees of an operation.

    `rename` maps an argument of the tool to the operation's word for it, `hide` leaves one out of
    the list that is seldom needed (it is still taken), `pin` fixes one, which is then refused from
    whoever calls. `elsewhere` maps an argument that the tool does not take to the tool that does.
    `tell_default` names switches of which the contract says that they are off at first; of others
    nobody expects anything else. `answers` names the parts of an answer that are worth a place in
    the list of tools. `present` and `explain` give answers and errors the shape of the tool's
    contract; `stamp` adds to both what goes with every answer, given the seconds it took, and
    `outline` says what `present` does to the schema. `go_on` says how to read what did not fit; a
    `whole` answer is never cut. What a tool that `is_elsewhere` works on is not kept here. A
    setting may switch a `feature` off, and its tools with it.
    """

    name: str
    title: str
    operation: Operation[Any, Any]
    description: str | None = None
    is_idempotent: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    hide: frozenset[str] = frozenset()
    pin: Mapping[str, Any] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    tell_default: frozenset[str] = frozenset()
    answers: tuple[str, ...] = ()
    present: Callable[[Body], Body] = _as_it_is
    explain: Callable[[MailError], Body] = explain_error
    stamp: Callable[[Body, float], Body] = _unstamped
    outline: Callable[[Body], Body] = _as_it_is
    go_on: str = "ask for less: a smaller limit, or fewer extras"
    whole: bool = False
    is_elsewhere: bool = False
    feature: str | None = None

    @property
    def is_read_only(self) -> bool:
        return self.operation.scope is Scope.READ

    @property
    def annotations(self) -> dict[str, bool]:
        """The hints of the protocol, as the operation's scope has them.

        Two of the four say nothing about a tool that only reads, and are left out.
        """
        if self.is_read_only:
            return {"readOnlyHint": True, "openWorldHint": self.is_elsewhere}
        return {
            "readOnlyHint": False,
            "destructiveHint": self.operation.destroys,
            "idempotentHint": self.is_idempotent,
            "openWorldHint": self.is_elsewhere or self.operation.scope is Scope.SEND,
        }

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the operation is asked. Raises InvalidInput for what the tool does not take."""
        for name in given:
            if name in self.elsewhere:
                raise InvalidInput(f"{name}: {self.name} takes none; use {self.elsewhere[name]}")
            if name in self.pin:
                raise InvalidInput(f"{name}: {self.name} does not take it; drop it")
        renamed = {self.rename.get(name, name): value for name, value in given.items()}
        return {**renamed, **self.pin}
