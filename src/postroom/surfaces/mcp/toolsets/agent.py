"""Toolset `agent`: few tools with short answers, for a day's work."""

from __future__ import annotations

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
from postroom.surfaces.mcp.tool import Body, Tool

SELDOM = frozenset({"allow_duplicate", "wait_s", "headers", "reply_to"})
"""Arguments of every send that are accepted but not listed."""

RECEIPT = ("id", "status")


def _untyped(_: Body) -> Body:
    """Answers are short and explain themselves; their schema would cost more than it tells."""
    return {"type": "object", "properties": {}}


TOOLS = (
    Tool(
        "find_mail",
        "Find mail",
        finding.find_mail,
        hide=frozenset({"query", "offset"}),
        outline=_untyped,
        go_on="read_mail reads messages in full; cursor reads on in the list",
    ),
    Tool(
        "read_mail",
        "Read mail",
        reading.read_mail,
        outline=_untyped,
        go_on="read fewer at once, or one on from next_offset",
    ),
    Tool(
        "send_mail",
        "Send a mail",
        writing.send_mail,
        hide=SELDOM,
        answers=RECEIPT,
    ),
    Tool(
        "reply_mail",
        "Reply",
        writing.reply_mail,
        hide=SELDOM,
        outline=_untyped,
    ),
    Tool(
        "forward_mail",
        "Forward",
        writing.forward_mail,
        hide=SELDOM | {"html"},
        outline=_untyped,
    ),
    Tool(
        "change_mail",
        "Change mail",
        changing.change_mail,
        outline=_untyped,
    ),
    Tool("undo", "Undo", outgoing.undo, answers=("status",)),
    Tool(
        "wait_for_mail",
        "Wait for mail",
        waiting.wait_for_mail,
        answers=("timed_out", "extracted", "since"),
    ),
    Tool(
        "list_mailboxes",
        "List mailboxes",
        waiting.list_mailboxes,
        outline=_untyped,
    ),
    Tool(
        "list_outgoing",
        "List outgoing mail",
        outgoing.list_outgoing,
        outline=_untyped,
    ),
    Tool("remember", "Remember", memory.remember, answers=RECEIPT),
    Tool(
        "recall",
        "Recall",
        memory.recall,
        feature="memory_search",
        outline=_untyped,
    ),
    Tool(
        "forget",
        "Forget",
        memory.forget,
        is_idempotent=True,
        answers=RECEIPT,
    ),
    Tool(
        "make_rule",
        "Make a rule",
        rules.make_rule,
        answers=("status", "rule_id", "plan_id"),
    ),
)
