"""Live tools of an installation in this process, with a scripted server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from postroom.app import App, open_app
from postroom.config import read_settings
from postroom.model.key import OWNER
from postroom.surfaces.mcp.call_tool import call_tool
from postroom.surfaces.mcp.toolsets import choose_tools

TOOLS = {tool.name: tool for tool in choose_tools(["imap"])}


def account_at(port: int, name: str = "DEFAULT") -> dict[str, str]:
    """The environment variables of an account at a local server without TLS."""
    values = {"HOST": "127.0.0.1", "PORT": str(port), "USER": "ana", "PASS": "secret"}
    values |= {"SECURE": "false", "INSECURE": "true"}
    return {f"MAIL_IMAP_{name}_{part}": value for part, value in values.items()}


@asynccontextmanager
async def app_with(folder: Path, *accounts: dict[str, str]) -> AsyncIterator[App]:
    """An installation with these accounts, and changes enabled."""
    variables = {"POSTROOM_DATA_DIR": str(folder), "MAIL_IMAP_WRITE_ENABLED": "true"}
    for account in accounts:
        variables |= account
    async with open_app(read_settings(variables).settings) as app:
        yield app


async def answer(app: App, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The complete result of a call, which must not be an error."""
    result = await call_tool(app.context(OWNER), TOOLS[tool], arguments)
    body: dict[str, Any] = result["structuredContent"]
    assert "data" in body, body
    return body
