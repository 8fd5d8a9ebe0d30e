"""The toolsets, one per contract: `inbox` (000 and 004), `mail` (001) and `memory` (003)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from importlib import import_module

from postroom.operations import accounts, inboxes, memories, memory_search, rules
from postroom.operations.mail import attachments, message_changes, messages, threads
from postroom.operations.outgoing import drafts, identities, outbox, sending
from postroom.surfaces.mcp.tool import Tool, describe
from postroom.surfaces.mcp.tool_listing import BY_NAME, DEFAULT, ON_DEMAND, choose

TEXT = ("text", "truncated", "next_offset")
SENT = ("message_id", "status")
UNLISTED_SEND_ARGUMENTS = frozenset(
    {"allow_duplicate", "wait_s", "reply_to", "headers", "send_at", "automatic"}
)
"""Taken by every send, but not worth a place in the list: an answer that needs it names it."""

NO_CURSOR = frozenset({"cursor"})
"""Lists that change little are continued by offset."""

SEARCH_MESSAGES = Tool(
    "search_messages",
    "Search messages",
    messages.search_messages,
    next_step="get_message shows a message in full; offset continues the list",
)
GET_MESSAGE = Tool(
    "get_message",
    "Read a message",
    messages.get_message,
    shown_defaults=frozenset({"include_attachments"}),
    listed_fields=("id", "thread_id", *TEXT, "attachments"),
    next_step="text_offset continues the text, with fewer extras or a smaller max_chars; "
    "list_attachments lists every attachment",
)
GET_THREAD = Tool(
    "get_thread",
    "Read a thread",
    threads.get_thread,
    listed_fields=("messages", "has_more"),
    next_step="get_message shows a message in full; before, with the id of the first message here, "
    "shows older ones",
)

INBOX_TOOLS = (
    Tool("create_inbox", "Create an inbox", inboxes.create_inbox),
    Tool("list_inboxes", "List inboxes", inboxes.list_inboxes, hide=NO_CURSOR),
    Tool(
        "list_messages",
        "List messages",
        messages.list_messages,
        hide=frozenset({"query", "subject", "flags", "mode", "sort", "cursor"}),
        next_step="get_message shows a message in full; offset continues the list",
    ),
    SEARCH_MESSAGES,
    GET_MESSAGE,
    Tool(
        "list_threads",
        "List threads",
        threads.list_threads,
        hide=NO_CURSOR,
        next_step="get_thread shows a thread; offset continues the list",
    ),
    GET_THREAD,
    Tool(
        "list_attachments",
        "List attachments",
        attachments.list_attachments,
        hide=NO_CURSOR,
        next_step="offset continues the list",
    ),
    Tool(
        "get_attachment_content",
        "Read an attachment",
        attachments.get_attachment_content,
        listed_fields=("content", "text", "content_type", "filename", "size"),
        next_step="offset continues the text",
        never_truncated=True,
        cut="text",
    ),
    Tool(
        "send_email",
        "Send an e-mail",
        sending.send_email,
        listed_fields=SENT,
        hide=UNLISTED_SEND_ARGUMENTS,
        other_tools={"attachments": "send_email_with_attachments"},
    ),
    Tool(
        "send_email_with_attachments",
        "Send an e-mail with attachments",
        sending.send_email_with_attachments,
        listed_fields=SENT,
        hide=UNLISTED_SEND_ARGUMENTS,
    ),
    Tool(
        "reply_to_message",
        "Reply to a message",
        sending.reply_to_message,
        listed_fields=SENT,
        hide=UNLISTED_SEND_ARGUMENTS,
    ),
    Tool(
        "cancel_message",
        "Cancel a message",
        outbox.cancel_message,
        listed_fields=("draft_id",),
        description="Stop a queued or scheduled message: it becomes a draft again.",
    ),
    Tool(
        "list_drafts",
        "List drafts",
        drafts.list_drafts,
        hide=frozenset({"cursor", "offset", "inbox_id"}),
    ),
    Tool(
        "wait_for_message",
        "Wait for a message",
        messages.wait_for_message,
        listed_fields=("timed_out", "extracted", "since"),
        next_step="get_message with text_offset continues the text",
    ),
)


DONE = ("status",)
PLAN = "run_rule_plan with offset and a smaller limit shows the rest of the messages"

MAIL_TOOLS = (
    SEARCH_MESSAGES,
    GET_MESSAGE,
    GET_THREAD,
    Tool(
        "apply_label",
        "Label messages",
        message_changes.apply_label,
        is_idempotent=True,
        listed_fields=DONE,
    ),
    Tool(
        "move_message",
        "Move a message",
        message_changes.move_message,
        is_idempotent=True,
        listed_fields=DONE,
    ),
    Tool(
        "update_message",
        "Set flags and labels",
        message_changes.update_message,
        hide=frozenset({"add_flags", "remove_flags", "add_labels", "remove_labels"}),
        is_idempotent=True,
        listed_fields=DONE,
    ),
    Tool(
        "delete_message",
        "Delete a message",
        message_changes.delete_message,
        is_idempotent=True,
        listed_fields=DONE,
    ),
    Tool(
        "send_message",
        "Send a message",
        sending.send_message,
        listed_fields=SENT,
        hide=(UNLISTED_SEND_ARGUMENTS - {"send_at"}) | {"thread_id"},
    ),
    Tool(
        "forward_message",
        "Forward a message",
        sending.forward_message,
        listed_fields=SENT,
        hide=UNLISTED_SEND_ARGUMENTS
        | {"body_html", "cc", "bcc", "attachments", "idempotency_key", "send_at"},
    ),
    Tool(
        "create_draft",
        "Write a draft",
        drafts.create_draft,
        listed_fields=("id",),
        description="Write a mail that send_draft sends. Takes the arguments of "
        "send_message; in_reply_to sets to and subject.",
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
        listed_fields=SENT,
        hide=frozenset({"idempotency_key"}),
    ),
    Tool(
        "list_identities",
        "List sender addresses",
        identities.list_identities,
        hide=frozenset({"inbox_id", "cursor"}),
    ),
    Tool("create_alias", "Create an alias", identities.create_alias, listed_fields=("id", "email")),
    Tool(
        "get_capabilities",
        "Capabilities",
        accounts.get_capabilities,
        listed_fields=("provider", "accounts"),
    ),
    Tool(
        "create_rule",
        "Make a rule",
        rules.create_rule,
        listed_fields=("plan_id", "total_matches", "matched_messages"),
        next_step=PLAN,
    ),
    Tool(
        "run_rule_plan",
        "Plan a rule",
        rules.run_rule_plan,
        listed_fields=("plan_id", "total_matches", "matched_messages"),
        next_step=PLAN,
    ),
    Tool("apply_rule_plan", "Apply a plan", rules.apply_rule_plan, listed_fields=DONE),
    Tool("undo_rule_plan", "Undo a plan", rules.undo_rule_plan, listed_fields=DONE),
    Tool(
        "list_rules",
        "List rules",
        rules.list_rules,
        hide=frozenset({"cursor", "offset"}),
        next_step="offset continues the list",
    ),
    Tool("delete_rule", "Delete a rule", rules.delete_rule, listed_fields=("yaml",)),
)


MEMORY = ("key", "text", "trust", "version")
MEMORY_LIST_HINT = "memory_get reads one in full; offset continues the list"

NO_TRUST_ARGUMENT = {"trust": None}
"""Only a person may raise trust, over REST or the CLI; tools refuse `trust`."""

MEMORY_TOOLS = (
    Tool(
        "memory_add",
        "Remember",
        memories.memory_add,
        is_idempotent=True,
        listed_fields=(*MEMORY, "created", "similar"),
    ),
    Tool(
        "memory_get",
        "Read a memory",
        memories.memory_get,
        listed_fields=(*MEMORY, "tags", "links", "next_offset"),
        next_step="text_offset continues the text, with a smaller max_chars",
    ),
    Tool(
        "memory_update",
        "Change a memory",
        memories.memory_update,
        is_idempotent=True,
        pin=NO_TRUST_ARGUMENT,
        listed_fields=MEMORY,
    ),
    Tool("memory_delete", "Forget a memory", memories.memory_delete, is_idempotent=True),
    Tool(
        "memory_list",
        "List memories",
        memory_search.memory_list,
        hide=NO_CURSOR,
        next_step=MEMORY_LIST_HINT,
    ),
    Tool(
        "memory_search",
        "Search memories",
        memory_search.memory_search,
        hide=NO_CURSOR,
        feature="memory_search",
        next_step=MEMORY_LIST_HINT,
    ),
    Tool(
        "memory_fulltext_search",
        "Search memories by keywords",
        memory_search.memory_fulltext_search,
        hide=NO_CURSOR,
        feature="memory_search",
        next_step=MEMORY_LIST_HINT,
    ),
)

TOOLSETS: dict[str, Sequence[Tool]] = {
    "inbox": INBOX_TOOLS,
    "mail": MAIL_TOOLS,
    "memory": MEMORY_TOOLS,
}


def choose_tools(
    toolsets: Iterable[str] | None = None,
    *,
    read_only: bool = False,
    useful: Iterable[str] = (),
    without: Collection[str] = (),
) -> list[Tool]:
    """The tools that are listed, see `choose`."""
    return choose(_tools_of, toolsets, read_only=read_only, useful=useful, without=without)


def _tools_of(toolset: str) -> Sequence[Tool]:
    if toolset in TOOLSETS:
        return TOOLSETS[toolset]
    tools: Sequence[Tool] = import_module(f"postroom.surfaces.mcp.{toolset}_tools").TOOLS
    return tools


def listing() -> str:
    """The content of `listing.json`: one tool per line."""
    toolsets = (*DEFAULT, *ON_DEMAND, *BY_NAME)
    tools = choose_tools(toolsets)
    names = {name: [tool.name for tool in _tools_of(name)] for name in toolsets}
    features = {tool.name: tool.feature for tool in tools if tool.feature}
    needs = {tool.name: sorted(tool.needs) for tool in tools}
    heads = {"toolsets": names, "features": features, "needs": needs}
    head = "".join(f'"{name}": {_compact(value)},\n' for name, value in heads.items())
    entries = ",\n".join(map(_compact, describe(tools)))
    return f'{{{head}"tools": [\n{entries}\n]}}\n'


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
