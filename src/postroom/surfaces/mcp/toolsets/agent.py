"""Toolset `agent`: few tools with short answers, for a day's work."""

from __future__ import annotations

from functools import partial

from postroom.operations.agent import (
    changing,
    finding,
    memory,
    outgoing,
    reading,
    rules,
    waiting,
    writing,
)
from postroom.surfaces.mcp.tool import Tool

SELDOM = frozenset({"allow_duplicate", "wait_s", "headers", "reply_to"})
"""Arguments of every send that are accepted but not listed."""

AS_IN_SEND = SELDOM | {"html", "attachments", "send_at", "idempotency_key"}
"""Arguments that send_mail explains for the others."""

MEMORY = frozenset({"namespace", "links", "tags", "expires_at"})
RULE = (
    "YAML. when: from to cc subject text label mailbox has_attachment age_days… with equals "
    "contains matches in greater_than; then: apply_label move mark_read flag archive delete "
    "forward reply."
)

_tool = partial(Tool, is_brief=True)

TOOLS = (
    _tool(
        "find_mail",
        "Find mail",
        finding.find_mail,
        hide=frozenset({"query", "offset", "thread_id", "cursor", "flags"}),
        say={
            "q": 'Words, "a phrase", is:flagged, from:ana…',
            "mode": "Each word; q as it is; by meaning.",
            "has_attachment": "With files.",
        },
        go_on="read_mail reads messages in full; cursor reads on in the list",
    ),
    _tool(
        "read_mail",
        "Read mail",
        reading.read_mail,
        go_on="read fewer at once, or one on from next_offset",
    ),
    _tool(
        "send_mail",
        "Send a mail",
        writing.send_mail,
        hide=SELDOM | {"html"},
        say={"idempotency_key": "Sent once per key.", "from": "Your address."},
    ),
    _tool("reply_mail", "Reply", writing.reply_mail, hide=AS_IN_SEND),
    _tool("forward_mail", "Forward", writing.forward_mail, hide=AS_IN_SEND),
    _tool("change_mail", "Change mail", changing.change_mail),
    _tool("undo", "Undo", outgoing.undo),
    _tool(
        "wait_for_mail",
        "Wait for mail",
        waiting.wait_for_mail,
        hide=frozenset({"thread_id", "q"}),
        say={"from": "Only from there.", "since": "From this id or time on; seconds back."},
    ),
    _tool("list_mailboxes", "List mailboxes", waiting.list_mailboxes),
    _tool("list_outgoing", "List outgoing mail", outgoing.list_outgoing),
    _tool("remember", "Remember", memory.remember, hide=MEMORY),
    _tool("recall", "Recall", memory.recall, feature="memory_search", hide=MEMORY),
    _tool("forget", "Forget", memory.forget, is_idempotent=True, hide=MEMORY),
    _tool("make_rule", "Make a rule", rules.make_rule, say={"yaml": RULE}),
)
