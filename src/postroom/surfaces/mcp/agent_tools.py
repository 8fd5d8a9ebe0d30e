"""Toolset `agent`: few tools with short responses, for everyday work."""

from __future__ import annotations

from functools import partial

from postroom.errors import MailError
from postroom.operations.agent import changing, finding, memory, reading, writing
from postroom.surfaces.http import reword_text
from postroom.surfaces.mcp.tool import Body, Tool, explain_error

UNLISTED_SEND_ARGUMENTS = frozenset({"allow_duplicate", "wait_s", "headers", "reply_to"})
"""Arguments of every send that are accepted but not listed."""

DOCUMENTED_BY_SEND_MAIL = UNLISTED_SEND_ARGUMENTS | {
    "html",
    "attachments",
    "send_at",
    "idempotency_key",
}
"""Arguments that send_mail explains for the others."""

MEMORY = frozenset({"namespace", "links", "tags", "expires_at", "limit", "offset"})
KEY = {"key": "Its name."}
RULE = (
    "YAML. when: from to cc subject text label mailbox has_attachment age_days… with equals "
    "contains matches in greater_than; then: apply_label move mark_read flag archive delete "
    "forward reply."
)

TOOL_OF = {
    **dict.fromkeys(("list_inboxes", "list_labels", "list_identities"), "list_mailboxes"),
    **dict.fromkeys(("list_messages", "search_messages", "list_attachments"), "find_mail"),
    **dict.fromkeys(("get_message", "get_thread", "get_attachment_content"), "read_mail"),
    **dict.fromkeys(("send_message", "send_draft", "create_draft"), "send_mail"),
    **dict.fromkeys(("memory_get", "memory_list", "memory_search"), "recall"),
    **dict.fromkeys(("cancel_message", "undo_rule_plan", "delete_rule"), "undo"),
    **dict.fromkeys(("create_rule", "run_rule_plan"), "make_rule"),
    "reply_to_message": "reply_mail",
    "forward_message": "forward_mail",
    "apply_rule_plan": "change_mail with plan_id",
    "list_drafts": "list_outgoing",
    "memory_add": "remember",
    "memory_delete": "forget",
    "wait_for_message": "wait_for_mail",
}
"""The tool of this toolset for what the others offer; errors name it."""

ARGUMENT_OF = {
    "rule_yaml": "yaml",
    "body_text": "body",
    "body_html": "html",
    "message_ids": "ids",
}
"""The arguments of these tools that have other names elsewhere."""


def _brief_error(error: MailError) -> Body:
    """An error in one line."""
    body = explain_error(error)
    body["error"]["details"].pop("problems", None)
    return body


def _reworded(body: Body) -> Body:
    """A result whose problems with single ids have the names of this toolset."""
    for item in (*body.get("results", ()), *body.get("failed", ())):
        for name in {"error", "note"}.intersection(item) if isinstance(item, dict) else ():
            item[name] = reword_text(item[name], TOOL_OF | ARGUMENT_OF)
    return body


_tool = partial(
    Tool,
    is_brief=True,
    explain=_brief_error,
    words=TOOL_OF | ARGUMENT_OF,
    shape_result=_reworded,
)

TOOLS = (
    _tool(
        "find_mail",
        "Find mail",
        finding.find_mail,
        hide=frozenset({"query", "offset", "thread_id", "cursor", "flags"}),
        descriptions={
            "limit": "At most; offset skips rows.",
            "q": 'Words, "a phrase", is:flagged, from:ana…',
            "mode": "All words; q literally; by meaning.",
            "from": "Name, address, @domain, or a part.",
            "has_attachment": "With files.",
        },
        next_step="read_mail reads messages in full; offset continues the list",
    ),
    _tool(
        "read_mail",
        "Read mail",
        reading.read_mail,
        next_step="read fewer at once, or continue one from next_offset",
    ),
    _tool(
        "send_mail",
        "Send a mail",
        writing.send_mail,
        hide=UNLISTED_SEND_ARGUMENTS | {"html"},
        descriptions={"idempotency_key": "Sent once per key.", "from": "Your address."},
    ),
    _tool("reply_mail", "Reply", writing.reply_mail, hide=DOCUMENTED_BY_SEND_MAIL),
    _tool("forward_mail", "Forward", writing.forward_mail, hide=DOCUMENTED_BY_SEND_MAIL),
    _tool("change_mail", "Change mail", changing.change_mail),
    _tool("undo", "Undo", writing.undo),
    _tool(
        "wait_for_mail",
        "Wait for mail",
        reading.wait_for_mail,
        hide=frozenset({"thread_id", "q"}),
        descriptions={
            "from": "Only from this sender.",
            "since": "Start after an id, a time, or seconds ago (-120).",
            "extract": "Extract a code or a link; skip other mail.",
        },
    ),
    _tool("list_mailboxes", "List mailboxes", reading.list_mailboxes),
    _tool(
        "list_outgoing",
        "List outgoing mail",
        writing.list_outgoing,
        hide=frozenset({"limit"}),
    ),
    _tool("remember", "Remember", memory.remember, hide=MEMORY, descriptions=KEY),
    _tool("recall", "Recall", memory.recall, feature="memory_search", hide=MEMORY),
    _tool("forget", "Forget", memory.forget, is_idempotent=True, hide=MEMORY, descriptions=KEY),
    _tool("make_rule", "Make a rule", changing.make_rule, descriptions={"yaml": RULE}),
)
