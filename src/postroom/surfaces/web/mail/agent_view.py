"""As the agent sees it: the results of the tools, what was kept out of them, and the policies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postroom.errors import MailError
from postroom.model.approval import ReplyVerdict, ReplyVerdicts
from postroom.model.key import AGENT_ID
from postroom.model.message import MarkedMessage, Message
from postroom.operations.mail.marked_messages import check_reply, get_marked_message
from postroom.surfaces.web.mail.sender import kept_out
from postroom.surfaces.web.page import Framed, Values, Visit
from postroom.surfaces.web.rendering import render

CHARS_PER_TOKEN = 4
MAX_TOKENS = 25_000
"""What clients of MCP accept as one result."""

FRAME_POLICY = (
    "default-src 'none'; img-src data:{hosts}; style-src 'unsafe-inline'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'; "
    "sandbox allow-popups allow-popups-to-escape-sandbox"
)
"""What the HTML of a mail may do: load pictures, if a person asked for them, and open links.

It is without `allow-same-origin`, although a page could then read the height of the frame: a
document of a stranger is never of our origin, whatever else may fail.
"""

_SOMEBODY = "somebody.else@example.com"
_VERDICTS = {
    "leaves": ("would be sent at once", "good"),
    "held": ("would be held for approval", "warn"),
    "refused": ("would be refused", "bad"),
    "stays": ("would be delivered here: the recipient is an inbox of this Postroom", "good"),
}


async def agent_view(visit: Visit, mail: Message) -> Values:
    """What the tab shows."""
    tools: dict[str, Values] = {
        "read_mail": {"ids": [mail.id]},
        "get_message": {"message_id": mail.id},
    }
    texts = {name: await visit.tool_text(visit.ctx, name, given) for name, given in tools.items()}
    marked: MarkedMessage = await visit.call(get_marked_message, message_id=mail.id)
    in_page = {piece.mark.number for piece in marked.plain if piece.mark}
    return {
        "answers": [_answer(name, text) for name, text in texts.items()],
        "max_tokens": MAX_TOKENS,
        "marked": marked,
        "in_page": in_page,
        "kept_out": kept_out(mail, marked.marks),
        "replies": await _replies(visit, mail),
        "other": visit.query.get("to", "").strip() or _SOMEBODY,
    }


def _answer(tool: str, text: str) -> Values:
    """The result of a tool; its JSON on several lines has the values that an agent gets."""
    value = json.loads(text)
    return {
        "tool": tool,
        "json": json.dumps(value, ensure_ascii=False, indent=2),
        "value": value,
        "tokens": -(-len(text) // CHARS_PER_TOKEN),
    }


@dataclass(frozen=True, slots=True)
class Preview:
    """What the policies say of a mail, in words; `error` if they cannot be asked."""

    title: str
    lines: Sequence[dict[str, Any]] = ()
    more: int = 0
    error: str = ""


async def _replies(visit: Visit, mail: Message) -> list[Preview]:
    """A reply to the sender, and the same to somebody else."""
    if mail.direction == "outbound":
        return []
    other = visit.query.get("to", "").strip() or _SOMEBODY
    return [
        await _preview(visit, mail, "Reply to the sender"),
        await _preview(visit, mail, "Same message to someone else", to=other),
    ]


async def _preview(visit: Visit, mail: Message, title: str, **to: str) -> Preview:
    try:
        found: ReplyVerdicts = await visit.call(check_reply, message_id=mail.id, **to)
    except MailError as error:
        return Preview(title, error=str(error))
    return Preview(title, [_line(one) for one in found.results], found.more)


def _line(found: ReplyVerdict) -> dict[str, Any]:
    words, tone = _VERDICTS[found.verdict.verdict]
    name = f"Key {found.name}" if found.name else "You"
    return {
        "who": "The agent on this computer (stdio)" if found.author == AGENT_ID else name,
        "to": ", ".join(found.to[:3]),
        "words": words,
        "tone": tone,
        "reasons": found.verdict.reasons,
    }


async def framed_marks(visit: Visit) -> Framed:
    """The HTML of a mail with marks, as a document that can do nothing but be read."""
    marked = await visit.call(get_marked_message, message_id=visit.path["message_id"])
    html = render("mail/frame.html", html=marked.html, has_marks=True)
    return Framed(html, FRAME_POLICY.format(hosts=""))
