"""Keyboard shortcuts: one table for the help on the pages and the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from postroom.surfaces.web.rendering import GO_TO, SHORTCUTS, SHOWN
from postroom.surfaces.web.server import LINKS
from tests.surfaces.web.conftest import WebUser, words

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "web.md"
SCRIPT = Path(__file__).parents[3] / "src/postroom/surfaces/web/assets/postroom.js"


def shown(keys: str) -> str:
    return " ".join(f"`{SHOWN.get(key, key)}`" for key in keys.split(" "))


def test_the_documentation_lists_every_key() -> None:
    section = DOCS.read_text().partition("## Keyboard")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| (`.+?) \| (.+?) \|$", section, re.MULTILINE)

    expected = [
        (", ".join(map(shown, row.keys)), row.words) for rows in SHORTCUTS.values() for row in rows
    ]
    expected += [(f"`g` `{key}`", f"open `{path}`") for path, key in GO_TO.items()]
    assert expected == listed


def test_every_key_is_used_once_and_does_something() -> None:
    rows = [row for rows in SHORTCUTS.values() for row in rows]
    keys = [*(key for row in rows for key in row.keys), *(f"g {key}" for key in GO_TO.values())]
    script = SCRIPT.read_text()

    assert len(keys) == len(set(keys))
    for row in rows:
        assert not row.action or re.search(rf'^\s+"?{row.action}"?: ', script, re.MULTILINE)
    assert {link.path for link in LINKS} <= GO_TO.keys()


async def test_the_help_lists_only_permitted_pages(owner: WebUser, anonymous: WebUser) -> None:
    page = await owner.read("/sessions")

    dialog = page.partition('<dialog id="keyboard"')[2].partition("</dialog>")[0]
    assert "j or ↓ next message" in words(dialog)
    assert 'data-keys="g o" data-action="/outgoing"' in dialog
    await anonymous.sign_in(key=await owner.installation.key("approve"))
    page = await anonymous.read("/sessions")
    assert 'data-action="/outgoing"' in page
    assert 'data-action="/mail"' not in page
