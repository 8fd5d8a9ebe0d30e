"""In every tool's answers, text of senders is marked as untrusted and has no invisible
characters.
"""

from __future__ import annotations

from typing import Any

import pytest

from postroom.model.key import OWNER
from postroom.surfaces.mcp.call_tool import call_tool
from postroom.surfaces.mcp.toolsets import ON_DEMAND, TOOLSETS, choose_tools
from tests.hostile_content import (
    ARGUMENTS,
    CANARY,
    HIDDEN,
    HIDING,
    arguments_of,
    changes_last,
    has_sender_content,
    hostile_installation,
    hostile_mail,
    problems_with,
)
from tests.servers.imap_script import Mail, scripted
from tests.surfaces.mcp.live_imap import TOOLS as LIVE
from tests.surfaces.mcp.live_imap import account_at, app_with

CARRY = {
    "get_message", "list_messages", "search_messages", "get_thread", "list_threads",
    "list_attachments", "list_identities", "reply_to_message", "run_rule_plan",
    "wait_for_message", "create_rule", "send_draft",
}  # fmt: skip
"""Tools that must return text of senders here for the test to be significant."""

COMMANDS = ("LIST", "EXAMINE", "SELECT", "UID SEARCH", "UID FETCH", "UID STORE", "UID COPY",
            "UID MOVE", "UID EXPUNGE", "LOGIN", "STATUS")  # fmt: skip


def test_every_operation_has_sample_arguments():
    every = choose_tools([*TOOLSETS, *ON_DEMAND])

    assert {tool.operation.name for tool in every} <= ARGUMENTS.keys()


def given(tool, things: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a tool by their names in the tool."""
    theirs = {ours: name for name, ours in tool.rename.items()}
    unseen = tool.hide | set(tool.pin)
    arguments = arguments_of(tool.operation.name, things)
    return {theirs.get(n, n): v for n, v in arguments.items() if n not in unseen}


async def test_every_tool_marks_and_cleans_text_of_senders(agent, ctx):
    things = await hostile_installation(ctx)
    tools = [tool for tool in choose_tools() if tool.name not in LIVE]
    found, carried = [], set()
    for tool in sorted(tools, key=lambda tool: changes_last(tool.operation.name)):
        is_error, body = await agent.try_call(tool.name, given(tool, things))
        found += problems_with(tool.name, body)
        carried |= {tool.name} if has_sender_content(body) else set()
        if is_error and body["error"]["details"]["kind"] in ("invalid_input", "internal"):
            found.append(f"{tool.name}: it was not tried: {body}")
    assert not found, "\n".join(found)
    assert set() == CARRY - carried


async def test_an_attachment_that_is_too_large_is_named_by_its_id(agent, ctx):
    things = await hostile_installation(ctx)

    error = await agent.fail("get_attachment_content", attachment_id=things["attachment_id"])

    assert things["attachment_id"] in error["message"]
    assert CANARY not in error["message"]


def hostile_boxes() -> dict[bytes, dict[int, Mail]]:
    raw = hostile_mail("bo@postroom.localhost").replace(CANARY.encode(), HIDING.encode())
    raw = raw.replace(b"\n", b"\r\n").replace(HIDDEN.encode(), b"nothing")
    return {b"INBOX": {1: Mail(raw)}, b"Archive": {}, f"&{CANARY}".encode(): {}}


async def walk(folder, **server: Any) -> tuple[list[str], set[str]]:
    """The problems in answers of live tools, and the tools that returned text of senders."""
    found, carried = [], set()
    async with (
        scripted(mailboxes=hostile_boxes(), **server) as scripted_server,
        app_with(folder, account_at(scripted_server.port)) as app,
    ):
        for tool in sorted(LIVE.values(), key=lambda tool: changes_last(tool.operation.name)):
            result = await call_tool(app.context(OWNER), tool, given(tool, {}))
            body = result["structuredContent"]
            found += problems_with(tool.name, body)
            carried |= {tool.name} if has_sender_content(body) else set()
            if result["isError"] and body["error"]["code"] == "invalid_input":
                found.append(f"{tool.name}: it was not tried: {body}")
    return found, carried


async def test_every_live_tool_marks_and_cleans_mail_and_mailboxes(tmp_path):
    found, carried = await walk(tmp_path)

    assert not found, "\n".join(found)
    assert {"imap_search_messages", "imap_get_message", "imap_list_mailboxes"} <= carried


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("word", ["NO", "BAD", "NO [NONEXISTENT]"])
async def test_text_of_a_server_is_marked_and_clean_in_every_live_tool(tmp_path, command, word):
    said = HIDING.replace("\x1b", "").encode()
    reply = b"{tag} " + word.encode() + b" " + said + b"\r\n"

    found, carried = await walk(tmp_path, replies={command: reply})

    assert not found, "\n".join(found)
    assert carried or command == "LOGIN"


@pytest.mark.parametrize("end", [b"* BYE %s\r\n", b"* BYE [ALERT] %s\r\n", b"* PREAUTHX %s\r\n"])
async def test_an_invalid_greeting_of_a_server_is_marked_and_clean(tmp_path, end):
    found, _ = await walk(tmp_path, greeting=end % HIDING.replace("\x1b", "").encode())

    assert not found, "\n".join(found)
