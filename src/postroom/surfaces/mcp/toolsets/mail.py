"""Toolset `mail`: one interface over all mail, as contract 001 names it."""

from __future__ import annotations

from postroom.operations import drafts, messages, sending
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.toolsets.inbox import (
    GET_MESSAGE,
    GET_THREAD,
    SEARCH_MESSAGES,
    SELDOM,
    SENT,
)

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
    Tool(
        name="create_draft",
        title="Write a draft",
        operation=drafts.create_draft,
        answers=("id", "inbox_id", "to", "subject"),
        hide=SELDOM | {"idempotency_key"},
    ),
    Tool(
        name="send_draft",
        title="Send a draft",
        operation=drafts.send_draft,
        is_idempotent=True,
        answers=SENT,
    ),
)
