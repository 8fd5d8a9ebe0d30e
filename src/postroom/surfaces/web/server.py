"""Builds the web pages, and the links that sign in to them."""

from __future__ import annotations

from starlette.types import ASGIApp

from postroom.app import App
from postroom.calls.web_sessions import new_sign_in_link
from postroom.surfaces.web.guide import INDEX, PREFIX, Guide
from postroom.surfaces.web.page import ToolText
from postroom.surfaces.web.surface import AccessControl, WebSurface

__all__ = ["sign_in_link", "web_mounts"]


def web_mounts(app: App, access: AccessControl, tool_text: ToolText) -> dict[str, ASGIApp]:
    """The pages and the guide, under each path where an HTTP server has to mount them."""
    surface, guide = WebSurface(app, access, tool_text), Guide()
    return {**dict.fromkeys(surface.prefixes, surface), PREFIX: guide, f"/{INDEX}": guide}


async def sign_in_link(app: App, base_url: str) -> str:
    """A link that signs the owner in, once, within 10 minutes. It is for their terminal only."""
    return f"{base_url.rstrip('/')}/signin?link={await new_sign_in_link(app.services)}"
