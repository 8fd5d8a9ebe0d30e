"""The tools as an agent has them, called by the official client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from mcp import Client

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.model.inbox import Inbox
from postroom.model.key import OWNER, Caller
from postroom.surfaces.mcp.server import make_server
from postroom.surfaces.mcp.toolsets import choose_tools
from tests.mails import new_inbox


@dataclass(frozen=True)
class Agent:
    """Calls tools, and checks properties that every answer must have."""

    client: Client

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a successful call."""
        is_error, body = await self.try_call(name, arguments)
        assert not is_error, body
        return body

    async def fail(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a refused call."""
        is_error, body = await self.try_call(name, arguments)
        assert is_error, body
        assert ["error"] == list(body)
        return body["error"]

    async def try_call(self, name: str, arguments: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        result = await self.client.call_tool(name, arguments)
        [content] = result.content
        assert json.loads(content.text) == result.structured_content
        listed = {tool.name: tool for tool in (await self.client.list_tools()).tools}
        if name in listed:
            jsonschema.validate(result.structured_content, listed[name].output_schema or {})
        return bool(result.is_error), result.structured_content


@asynccontextmanager
async def acting(app: App, caller: Caller = OWNER) -> AsyncIterator[Agent]:
    """An agent with the rights of a caller."""
    async with Client(make_server(app, choose_tools(), lambda _: caller)) as client:
        yield Agent(client)


@pytest.fixture
async def agent(app: App) -> AsyncIterator[Agent]:
    async with acting(app) as agent:
        yield agent


@pytest.fixture
async def inbox(ctx: RequestContext) -> Inbox:
    return await new_inbox(ctx)
