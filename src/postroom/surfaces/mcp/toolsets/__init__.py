"""The toolsets, one per contract."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module

from postroom.surfaces.mcp.listing import BY_NAME, DEFAULT, ON_DEMAND, choose
from postroom.surfaces.mcp.tool import Tool, describe
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
    useful: Iterable[str] = (),
    without: Collection[str] = (),
) -> list[Tool]:
    """The tools that are listed, see `choose`."""
    return choose(_tools_of, toolsets, read_only=read_only, useful=useful, without=without)


def _tools_of(toolset: str) -> Sequence[Tool]:
    if toolset in TOOLSETS:
        return TOOLSETS[toolset]
    tools: Sequence[Tool] = import_module(f"{__name__}.{toolset}").TOOLS
    return tools


def listing() -> str:
    """What `listing.json` has to hold: one tool per line."""
    toolsets = (*DEFAULT, *ON_DEMAND, *BY_NAME)
    tools = choose_tools(toolsets)
    names = {name: [tool.name for tool in _tools_of(name)] for name in toolsets}
    features = {tool.name: tool.feature for tool in tools if tool.feature}
    needs = {tool.name: sorted(tool.needs) for tool in tools}
    heads = {"toolsets": names, "features": features, "needs": needs}
    head = "".join(f'"{name}": {_compact(value)},\n' for name, value in heads.items())
    entries = ",\n".join(map(_compact, describe(tools)))
    return f'{{{head}"tools": [\n{entries}\n]}}\n'


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
