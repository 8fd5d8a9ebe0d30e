"""Toolset `mail`: one interface over all mail, as contract 001 names it."""

from __future__ import annotations

from postroom.operations import accounts, rules
from postroom.operations.mail import message_changes
from postroom.operations.outgoing import drafts, identities, sending
from postroom.surfaces.mcp.tool import Tool
from postroom.surfaces.mcp.toolsets.inbox import (
    GET_MESSAGE,
    GET_THREAD,
    SEARCH_MESSAGES,
    SELDOM,
    SENT,
)

DONE = ("status",)
PLAN = "run_rule_plan with offset and a smaller limit shows the rest of the messages"

TOOLS = (
    SEARCH_MESSAGES,
    GET_MESSAGE,
    GET_THREAD,
    Tool(
        "apply_label",
        "Label messages",
        message_changes.apply_label,
        is_idempotent=True,
        answers=DONE,
    ),
    Tool(
        "move_message",
        "Move a message",
        message_changes.move_message,
        is_idempotent=True,
        answers=DONE,
    ),
    Tool(
        "update_message",
        "Set flags and labels",
        message_changes.update_message,
        hide=frozenset({"add_flags", "remove_flags", "add_labels", "remove_labels"}),
        is_idempotent=True,
        answers=DONE,
    ),
    Tool(
        "delete_message",
        "Delete a message",
        message_changes.delete_message,
        is_idempotent=True,
        answers=DONE,
    ),
    Tool(
        "send_message",
        "Send a message",
        sending.send_message,
        answers=SENT,
        hide=(SELDOM - {"send_at"}) | {"thread_id"},
    ),
    Tool(
        "forward_message",
        "Forward a message",
        sending.forward_message,
        answers=SENT,
        hide=SELDOM | {"body_html", "cc", "bcc", "attachments", "idempotency_key", "send_at"},
    ),
    Tool(
        "create_draft",
        "Write a draft",
        drafts.create_draft,
        answers=("id",),
        description="Write a mail that send_draft sends. Takes what send_message takes; "
        "with in_reply_to, to and subject follow from it.",
        hide=frozenset(
            {
                *("body_html", "cc", "bcc", "attachments", "from", "thread_id", "inbox_id"),
                *("reply_to", "headers"),
            }
        ),
    ),
    Tool(
        "send_draft",
        "Send a draft",
        drafts.send_draft,
        is_idempotent=True,
        answers=SENT,
        hide=frozenset({"idempotency_key"}),
    ),
    Tool(
        "list_identities",
        "List sender addresses",
        identities.list_identities,
        hide=frozenset({"inbox_id", "cursor"}),
    ),
    Tool("create_alias", "Create an alias", identities.create_alias, answers=("id", "email")),
    Tool(
        "get_capabilities",
        "Capabilities",
        accounts.get_capabilities,
        answers=("provider", "accounts"),
    ),
    Tool(
        "create_rule",
        "Make a rule",
        rules.create_rule,
        answers=("plan_id", "total_matches", "matched_messages"),
        go_on=PLAN,
    ),
    Tool(
        "run_rule_plan",
        "Plan a rule",
        rules.run_rule_plan,
        answers=("plan_id", "total_matches", "matched_messages"),
        go_on=PLAN,
    ),
    Tool("apply_rule_plan", "Apply a plan", rules.apply_rule_plan, answers=DONE),
    Tool("undo_rule_plan", "Undo a plan", rules.undo_rule_plan, answers=DONE),
    Tool(
        "list_rules",
        "List rules",
        rules.list_rules,
        hide=frozenset({"cursor", "offset"}),
        go_on="offset reads on in the list",
    ),
    Tool("delete_rule", "Delete a rule", rules.delete_rule, answers=("yaml",)),
)
