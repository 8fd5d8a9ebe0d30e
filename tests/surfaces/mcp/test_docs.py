"""What `docs/mcp.md` lists is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from postroom.surfaces.mcp.explaining import CODES
from postroom.surfaces.mcp.toolsets import TOOLSETS

PAGE = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text("utf-8")


def test_the_page_lists_every_tool_with_its_toolsets():
    listed = dict(re.findall(r"^\| `([a-z_]+)` \| ([a-z, ]+) \|", PAGE, re.MULTILINE))

    tools: dict[str, list[str]] = {}
    for name, toolset in TOOLSETS.items():
        for tool in toolset:
            tools.setdefault(tool.name, []).append(name)
    assert {name: ", ".join(toolsets) for name, toolsets in tools.items()} == listed


def test_the_page_lists_every_code_with_its_kinds():
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.+) \|$", PAGE, re.MULTILINE)
    listed = {kind: code for code, kinds in rows for kind in re.findall(r"`([a-z_]+)`", kinds)}

    assert CODES == {kind: code for kind, code in listed.items() if kind != "retry_after"}
