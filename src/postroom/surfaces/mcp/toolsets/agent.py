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
from postroom.surfaces.mcp.tool import Body, Tool

SELDOM = frozenset({"allow_duplicate", "wait_s", "headers", "reply_to"})
"""Arguments of every send that are accepted but not listed."""

AS_IN_SEND = SELDOM | {"html", "attachments", "send_at", "idempotency_key"}
"""Arguments that send_mail explains for the others."""


def _untyped(_: Body) -> Body:
    """Answers are short and explain themselves; their schema would cost more than it tells."""
    return {"type": "object"}


_tool = partial(Tool, outline=_untyped)

TOOLS = (
    _tool(
        "find_mail",
        "Find mail",
        finding.find_mail,
        hide=frozenset({"query", "offset"}),
        go_on="read_mail reads messages in full; cursor reads on in the list",
    ),
    _tool(
        "read_mail",
        "Read mail",
        reading.read_mail,
        go_on="read fewer at once, or one on from next_offset",
    ),
    _tool("send_mail", "Send a mail", writing.send_mail, hide=SELDOM),
    _tool("reply_mail", "Reply", writing.reply_mail, hide=AS_IN_SEND),
    _tool("forward_mail", "Forward", writing.forward_mail, hide=AS_IN_SEND),
    _tool("change_mail", "Change mail", changing.change_mail),
    _tool("undo", "Undo", outgoing.undo),
    _tool("wait_for_mail", "Wait for mail", waiting.wait_for_mail),
    _tool("list_mailboxes", "List mailboxes", waiting.list_mailboxes),
    _tool("list_outgoing", "List outgoing mail", outgoing.list_outgoing),
    _tool("remember", "Remember", memory.remember, hide=frozenset({"namespace", "links"})),
    _tool(
        "recall", "Recall", memory.recall, feature="memory_search", hide=frozenset({"namespace"})
    ),
    _tool("forget", "Forget", memory.forget, is_idempotent=True, hide=frozenset({"namespace"})),
    _tool("make_rule", "Make a rule", rules.make_rule),
)
