"""The contracts as sets of tools, and which of them are shown."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from postroom.errors import InvalidInput
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.toolsets import inbox, mail, memory

TOOLSETS: dict[str, Sequence[Tool]] = {
    "inbox": inbox.TOOLS,
    "mail": mail.TOOLS,
    "memory": memory.TOOLS,
}


def choose_tools(
    toolsets: Iterable[str] | None = None,
    *,
    read_only: bool = False,
    without: Collection[str] = (),
) -> list[Tool]:
    """The tools of these toolsets, of all if none are named; a tool of two comes once.

    Those of a feature in *without* are left out.

    Raises:
        InvalidInput: there is no such toolset.
        RuntimeError: two different tools claim one name.
    """
    chosen = [_toolset(name) for name in toolsets] if toolsets else list(TOOLSETS.values())
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
    close = difflib.get_close_matches(name, TOOLSETS, n=1)
    advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(TOOLSETS)}"
    raise InvalidInput(f"no toolset {name}; {advice}")
