"""The contracts as sets of tools, and which of them are shown."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module

from postroom.errors import InvalidInput
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.toolsets import inbox, mail, memory

TOOLSETS: dict[str, Sequence[Tool]] = {
    "inbox": inbox.TOOLS,
    "mail": mail.TOOLS,
    "memory": memory.TOOLS,
}
ON_DEMAND = ("imap",)
"""Toolsets that are shown when they are named, or when there is a use for them; a start that does
without them does not load them."""


def choose_tools(
    toolsets: Iterable[str] | None = None,
    *,
    read_only: bool = False,
    useful: Iterable[str] = (),
    without: Collection[str] = (),
) -> list[Tool]:
    """The tools of these toolsets; if none are named, of all, on demand only the useful ones.

    A tool of two toolsets comes once.

    Those of a feature in *without* are left out.

    Raises:
        InvalidInput: there is no such toolset.
        RuntimeError: two different tools claim one name.
    """
    chosen = [_toolset(name) for name in toolsets or (*TOOLSETS, *useful)]
    tools: dict[str, Tool] = {}
    for tool in (tool for toolset in chosen for tool in toolset):
        if tools.setdefault(tool.name, tool) is not tool:
            raise RuntimeError(f"two different tools are named {tool.name}")
    return [
        tool
        for tool in tools.values()
        if (tool.is_read_only or not read_only) and tool.feature not in without
    ]


def _toolset(name: str) -> Sequence[Tool]:
    if name in TOOLSETS:
        return TOOLSETS[name]
    if name in ON_DEMAND:
        tools: Sequence[Tool] = import_module(f"{__name__}.{name}").TOOLS
        return tools
    known = (*TOOLSETS, *ON_DEMAND)
    close = difflib.get_close_matches(name, known, n=1)
    advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    raise InvalidInput(f"no toolset {name}; {advice}")
