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
        name="find_mail",
        title="Find mail",
        operation=finding.find_mail,
        hide=frozenset({"query", "offset"}),
        outline=_untyped,
        go_on="read_mail reads messages in full; cursor reads on in the list",
    ),
    Tool(
        name="read_mail",
        title="Read mail",
        operation=reading.read_mail,
        outline=_untyped,
        go_on="read fewer at once, or one on from next_offset",
    ),
    Tool(
        name="send_mail",
        title="Send a mail",
        operation=writing.send_mail,
        hide=SELDOM,
        answers=RECEIPT,
    ),
    Tool(
        name="reply_mail",
        title="Reply",
        operation=writing.reply_mail,
        hide=SELDOM,
        outline=_untyped,
    ),
    Tool(
        name="forward_mail",
        title="Forward",
        operation=writing.forward_mail,
        hide=SELDOM | {"html"},
        outline=_untyped,
    ),
    Tool(
        name="change_mail",
        title="Change mail",
        operation=changing.change_mail,
        outline=_untyped,
    ),
    Tool(name="undo", title="Undo", operation=outgoing.undo, answers=("status",)),
    Tool(
        name="wait_for_mail",
        title="Wait for mail",
        operation=waiting.wait_for_mail,
        answers=("timed_out", "extracted", "since"),
    ),
    Tool(
        name="list_mailboxes",
        title="List mailboxes",
        operation=waiting.list_mailboxes,
        outline=_untyped,
    ),
    Tool(
        name="list_outgoing",
        title="List outgoing mail",
        operation=outgoing.list_outgoing,
        outline=_untyped,
    ),
    Tool(name="remember", title="Remember", operation=memory.remember, answers=RECEIPT),
    Tool(
        name="recall",
        title="Recall",
        operation=memory.recall,
        feature="memory_search",
        outline=_untyped,
    ),
    Tool(
        name="forget",
        title="Forget",
        operation=memory.forget,
        is_idempotent=True,
        answers=RECEIPT,
    ),
    Tool(
        name="make_rule",
        title="Make a rule",
        operation=rules.make_rule,
        answers=("status", "rule_id", "plan_id"),
    ),
)
