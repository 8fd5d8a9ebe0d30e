"""Toolset `mail`: one interface over all mail, as contract 001 names it."""

from __future__ import annotations

from postroom.operations import accounts, drafts, identities, message_changes, rules, sending
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.toolsets.inbox import (
    GET_MESSAGE,
    GET_THREAD,
    SEARCH_MESSAGES,
    SELDOM,
    SENT,
)

DONE = ("status", "succeeded", "failed")
PLAN = "run_rule_plan with offset and a smaller limit shows the rest of the messages"

TOOLS = (
    SEARCH_MESSAGES,
    GET_MESSAGE,
    GET_THREAD,
    Tool(
        name="apply_label",
        title="Label messages",
        operation=message_changes.apply_label,
        is_idempotent=True,
        answers=DONE,
    ),
    Tool(
        name="move_message",
        title="Move a message",
        operation=message_changes.move_message,
        is_idempotent=True,
        answers=DONE,
    ),
    Tool(
        name="update_message",
        title="Set flags and labels",
        operation=message_changes.update_message,
        is_idempotent=True,
        answers=DONE,
    ),
    Tool(
        name="send_message",
        title="Send a message",
        operation=sending.send_message,
        answers=SENT,
        hide=SELDOM | {"thread_id"},
    ),
    Tool(
        name="create_draft",
        title="Write a draft",
        operation=drafts.create_draft,
        answers=("id", "inbox_id", "to", "subject"),
        description="Write a mail without sending it; send_draft sends it. "
        "Takes the mail as send_message does, and send_at.",
        hide=frozenset(
            {"body_html", "cc", "bcc", "attachments", "in_reply_to", "from", "thread_id"}
        ),
    ),
    Tool(
        name="send_draft",
        title="Send a draft",
        operation=drafts.send_draft,
        is_idempotent=True,
        answers=SENT,
        hide=frozenset({"idempotency_key"}),
    ),
    Tool(
        name="list_identities",
        title="List sender addresses",
        operation=identities.list_identities,
        hide=frozenset({"inbox_id", "cursor"}),
    ),
    Tool(
        name="create_alias",
        title="Create an alias",
        operation=identities.create_alias,
        answers=("id", "email"),
    ),
    Tool(
        name="get_capabilities",
        title="Capabilities",
        operation=accounts.get_capabilities,
        answers=("provider", "accounts"),
    ),
    Tool(
        name="create_rule",
        title="Make a rule",
        operation=rules.create_rule,
        answers=("id", "plan_id", "total_matches", "matched_messages"),
        go_on=PLAN,
    ),
    Tool(
        name="run_rule_plan",
        title="Plan a rule",
        operation=rules.run_rule_plan,
        answers=("plan_id", "total_matches", "matched_messages", "has_more"),
        go_on=PLAN,
    ),
    Tool(
        name="apply_rule_plan",
        title="Apply a plan",
        operation=rules.apply_rule_plan,
        answers=DONE,
    ),
    Tool(
        name="list_rules",
        title="List rules",
        operation=rules.list_rules,
        hide=frozenset({"cursor"}),
        go_on="offset reads on in the list",
    ),
    Tool(
        name="delete_rule",
        title="Delete a rule",
        operation=rules.delete_rule,
        answers=("id", "yaml"),
    ),
)
