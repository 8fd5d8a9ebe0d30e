"""An agent over MCP is told of holds, waits for decisions, and has no tool to decide."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp import Client

from postroom.app import App
from postroom.calls.context import RequestContext
from postroom.calls.operation import call
from postroom.model.key import AGENT, OWNER
from postroom.operations.outgoing.approvals import approve_message, get_held_mail
from postroom.surfaces.mcp.server import make_server
from postroom.surfaces.mcp.tool_listing import BY_NAME, DEFAULT, ON_DEMAND
from postroom.surfaces.mcp.toolsets import choose_tools
from tests.approval.conftest import UNKNOWN
from tests.mails import new_inbox

EVERY_TOOL = choose_tools((*DEFAULT, *ON_DEMAND, *BY_NAME))
MAIL = {"to": [UNKNOWN], "subject": "Hi", "body": "Hello"}


def relaying_app(app: App) -> App:
    from postroom.model.mail.approval import Policy

    gate = replace(app.services.gate, agent=Policy("risky"))
    return replace(app, services=replace(app.services, has_relay=True, gate=gate))


async def approve(ctx: RequestContext, message_id: str) -> None:
    held = await call(ctx, get_held_mail, {"message_id": message_id})
    decision = {"message_id": message_id, "sha256": held.hold.sha256}
    await call(ctx, approve_message, decision)


async def test_a_wait_of_the_agent_ends_with_the_decision(app: App) -> None:
    here = relaying_app(app)
    await new_inbox(here.services, "me")
    server = make_server(here, EVERY_TOOL, lambda _: here.agent)

    async with Client(server) as client:
        sent = (await client.call_tool("send_mail", MAIL)).structured_content or {}
        waiting = asyncio.create_task(
            client.call_tool("wait_for_mail", {"message_id": sent["id"], "timeout_s": 30})
        )
        await approve(here.context(OWNER), sent["id"])
        woken = (await waiting).structured_content or {}

    assert ("held", "queued") == (sent["status"], woken["message"]["status"])
    assert UNKNOWN in sent["warnings"][0]
    assert not woken["timed_out"]


async def test_a_client_that_opens_urls_gets_the_approval_page(app: App) -> None:
    here = relaying_app(app)
    await new_inbox(here.services, "me")
    asked: asyncio.Queue[Any] = asyncio.Queue()

    async def accept(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.put_nowait(params)
        return types.ElicitResult(action="accept")

    server = make_server(here, EVERY_TOOL, lambda _: here.agent)
    async with Client(server, elicitation_callback=accept, mode="legacy") as client:
        sent = (await client.call_tool("send_mail", MAIL)).structured_content or {}
        params = await asyncio.wait_for(asked.get(), 20)

    message = await here.services.store.message(sent["id"], here.context(OWNER).visible)
    assert message is not None
    assert ("url", "held") == (params.mode, message.status)
    assert params.url.endswith(f"/outgoing/{sent['id']}")


def test_no_tool_approves_or_rejects() -> None:
    names = {tool.operation.name for tool in EVERY_TOOL}

    assert not [name for name in names if re.search("approve|reject|policy|key", name)]
    assert "approve" not in {str(scope) for scope in AGENT.scopes}
