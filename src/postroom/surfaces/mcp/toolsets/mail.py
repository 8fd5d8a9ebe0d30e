"""Toolset `mail`: one interface over all mail, as contract 001 names it."""

from __future__ import annotations

from postroom.operations import messages, sending
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.toolsets.inbox import GET_MESSAGE, GET_THREAD, SEARCH_MESSAGES, SENT

TOOLS = (
    SEARCH_MESSAGES,
    GET_MESSAGE,
    GET_THREAD,
    Tool(
        name="apply_label",
        title="Label messages",
        operation=messages.apply_label,
        is_idempotent=True,
    ),
    Tool(
        name="move_message",
        title="Move a message",
        operation=messages.move_message,
        is_idempotent=True,
    ),
    Tool(
        name="update_message",
        title="Set flags and labels",
        operation=messages.update_message,
        is_idempotent=True,
    ),
    Tool(
        name="send_message",
        title="Send a message",
        operation=sending.send_message,
        answers=SENT,
    ),
)
