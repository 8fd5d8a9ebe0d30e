"""Which tools are listed, and the list itself as a file.

`tools/list` is the second request of every client. `listing.json` answers it without loading the
operations, which are loaded with the first call of a tool. A test compares the file with the tools;
`pytest tests/surfaces/mcp --update-golden` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from postroom.errors import InvalidInput
from postroom.model.key import Caller
from postroom.model.values import dataclass
from postroom.model.view import NOTHING

if TYPE_CHECKING:
    from postroom.surfaces.mcp.tool import Tool

DEFAULT = ("inbox", "mail", "memory")
ON_DEMAND = ("imap",)
"""Toolsets that are listed if they are named, or if there is an account that they apply to."""

BY_NAME = ("agent",)
"""Toolsets that are listed only if they are named."""

FILE = Path(__file__).with_name("listing.json")


T = TypeVar("T", bound="Tool | ListedTool")


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as the file has it; `entry` is what `tools/list` shows."""

    entry: dict[str, Any]
    feature: str | None
    needs: frozenset[str]

    @property
    def name(self) -> str:
        return str(self.entry["name"])

    @property
    def is_read_only(self) -> bool:
        return bool(self.entry["annotations"].get("readOnlyHint"))


def choose(
    tools_of: Callable[[str], Sequence[T]],
    toolsets: Iterable[str] | None = None,
    *,
    read_only: bool = False,
    useful: Iterable[str] = (),
    without: Collection[str] = (),
) -> list[T]:
    """The tools of these toolsets, each once; by default those of all toolsets that are *useful*.

    Tools of a feature in *without* are left out.

    Raises:
        InvalidInput: there is no such toolset.
        RuntimeError: two different tools have the same name.
    """
    tools: dict[str, T] = {}
    for toolset in list(toolsets or ()) or (*DEFAULT, *useful):
        _check(toolset)
        for tool in tools_of(toolset):
            if tools.setdefault(tool.name, tool) is not tool:
                raise RuntimeError(f"two different tools are named {tool.name}")
    return [
        tool
        for tool in tools.values()
        if (tool.is_read_only or not read_only) and tool.feature not in without
    ]


def _check(toolset: str) -> None:
    known = (*BY_NAME, *DEFAULT, *ON_DEMAND)
    if toolset not in known:
        import difflib

        close = difflib.get_close_matches(toolset, known, n=1)
        advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise InvalidInput(f"there is no toolset {toolset}; {advice}")


NAMESPACES = "namespaces"
OR = " or "
"""Between two rights of which one is enough."""


def rights_of(caller: Caller) -> frozenset[str]:
    """What a caller may use: its scopes, and memories if it sees any namespace."""
    memories = () if caller.namespaces == NOTHING else (NAMESPACES,)
    return frozenset((*map(str, caller.scopes), *memories))


def is_of_use(tool: Tool | ListedTool, rights: frozenset[str]) -> bool:
    """Whether a caller with these rights has what the tool needs."""
    return all(not rights.isdisjoint(need.split(OR)) for need in tool.needs)


def read_listing() -> Callable[[str], list[ListedTool]]:
    """The tools of each toolset, from the file."""
    data = json.loads(FILE.read_bytes())
    features, needs = data["features"], data["needs"]
    tools = {
        name: ListedTool(entry, features.get(name), frozenset(needs[name]))
        for entry in data["tools"]
        for name in [entry["name"]]
    }
    return lambda toolset: [tools[name] for name in data["toolsets"][toolset]]
