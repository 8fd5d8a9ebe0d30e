"""The tools and codes in `docs/reference/mcp.md` and `docs/reference/imap.md` are the real ones."""

from __future__ import annotations

import re
from pathlib import Path

from postroom.surfaces.mcp import imap_tools
from postroom.surfaces.mcp.tool import CODES
from postroom.surfaces.mcp.toolsets import ON_DEMAND, TOOLSETS, choose_tools

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "mcp.md").read_text("utf-8")
LIVE = (ROOT / "docs" / "reference" / "imap.md").read_text("utf-8")


def test_the_page_lists_every_tool_with_its_toolsets():
    listed = dict(re.findall(r"^\| `([a-z_]+)` \| ([a-z, ]+) \|", PAGE, re.MULTILINE))

    tools: dict[str, list[str]] = {}
    for name in (*TOOLSETS, *ON_DEMAND):
        for tool in choose_tools([name]):
            tools.setdefault(tool.name, []).append(name)
    assert {name: ", ".join(toolsets) for name, toolsets in tools.items()} == listed


def test_the_page_lists_every_code_with_its_kinds():
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.+) \|$", PAGE, re.MULTILINE)
    listed = {kind: code for code, kinds in rows for kind in re.findall(r"`([a-z_]+)`", kinds)}

    assert CODES == {kind: code for kind, code in listed.items() if kind != "retry_after"}


def test_the_page_on_live_mail_lists_its_tools_in_order():
    listed = re.findall(r"^\| `(imap_[a-z_]+)` \|", LIVE, re.MULTILINE)

    assert [tool.name for tool in choose_tools(["imap"])] == listed


def rows(heading: str) -> set[str]:
    """The codes in the first column of a table."""
    table = LIVE.partition(f"| {heading} `code` |")[2].partition("\n\n")[0]
    columns = re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
    return {code for column in columns for code in re.findall(r"`([a-z_]+)`", column)}


def test_the_page_on_live_mail_lists_every_code():
    folders = (ROOT / "src/postroom/operations/imap", ROOT / "src/postroom/providers/imap")
    sources = [path.read_text("utf-8") for folder in folders for path in folder.glob("*.py")]
    said = re.compile(r"(?:\.add|_note|_fail)\(\s*\"([a-z_]+)\"")
    own = {code for source in sources for code in said.findall(source)}
    soft = {"provider_error", "provider_auth", "provider_timeout", "not_found", "too_large"}

    assert {imap_tools.CODES.get(code, code) for code in own | soft} == rows("issue")
    assert set(imap_tools.CODES.values()) == rows("error")
