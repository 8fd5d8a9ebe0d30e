"""One mail: as a person sees it, its text, what an agent gets, its source, and who sent it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from postroom.errors import MailError
from postroom.model.key import AGENT_ID
from postroom.model.mail.approval import ReplyVerdict, ReplyVerdicts
from postroom.model.mail.message import Attachment, MarkedMessage, Message, Thread
from postroom.model.mail.sending import HeldMail
from postroom.operations.mail.attachments import download_message, get_attachment_content
from postroom.operations.mail.marked_messages import check_reply, get_marked_message
from postroom.operations.mail.messages import PICTURES, get_message, get_message_html
from postroom.operations.mail.threads import get_thread
from postroom.operations.mail.unsubscribing import unsubscribe
from postroom.surfaces.web.mail.listing import mail_url, panes, place_of
from postroom.surfaces.web.mail.sender import (
    compare_domains,
    sender_notes,
    verdict_on_sender,
    withheld,
)
from postroom.surfaces.web.page import FramedPage, PageRequest, Redirect, Values
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


async def agent_view(request: PageRequest, mail: Message) -> Values:
    """What the tab shows."""
    tools: dict[str, Values] = {
        "read_mail": {"ids": [mail.id]},
        "get_message": {"message_id": mail.id},
    }
    texts = {
        name: await request.tool_text(request.ctx, name, given) for name, given in tools.items()
    }
    marked: MarkedMessage = await request.call(get_marked_message, message_id=mail.id)
    in_page = {piece.mark.number for piece in marked.plain if piece.mark}
    return {
        "answers": [_answer(name, text) for name, text in texts.items()],
        "max_tokens": MAX_TOKENS,
        "marked": marked,
        "in_page": in_page,
        "withheld": withheld(mail, marked.marks),
        "replies": await _replies(request, mail),
        "other": request.query.get("to", "").strip() or _SOMEBODY,
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


async def _replies(request: PageRequest, mail: Message) -> list[Preview]:
    """A reply to the sender, and the same to somebody else."""
    if mail.direction == "outbound":
        return []
    other = request.query.get("to", "").strip() or _SOMEBODY
    return [
        await _preview(request, mail, "Reply to the sender"),
        await _preview(request, mail, "Same message to someone else", to=other),
    ]


async def _preview(request: PageRequest, mail: Message, title: str, **to: str) -> Preview:
    try:
        found: ReplyVerdicts = await request.call(check_reply, message_id=mail.id, **to)
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


async def framed_marks(request: PageRequest) -> FramedPage:
    """The HTML of a mail with marks, as a document without any capabilities."""
    marked = await request.call(get_marked_message, message_id=request.path["message_id"])
    html = render("mail/frame.html", html=marked.html, has_marks=True)
    return FramedPage(html, FRAME_POLICY.format(hosts=""))


TABS = {
    "mail": "Mail",
    "text": "Text",
    "agent": "As the agent sees it",
    "source": "Source",
    "sender": "Sender",
}
_MAX_CHARS = 100_000
_SOURCE_BYTES = 131_072
_PREVIEW_CHARS = 20_000
_PICTURE_BYTES = 10_485_760
_THUMBNAIL_BYTES, _MAX_THUMBNAILS = 2_097_152, 12
_TALL_CHARS, _SHORT_CHARS = 2_500, 300


async def message(request: PageRequest) -> Values:
    """A mail beside the list that it was chosen from."""
    tab = request.query.get("tab", "mail")
    tab = tab if tab in TABS else "mail"
    wants = {"include_html": tab == "mail", "include_headers": tab == "sender"}
    mail = await request.call(
        get_message, message_id=request.path["message_id"], max_chars=_MAX_CHARS, **wants
    )
    values = await panes(request)
    thread = await request.call(get_thread, thread_id=mail.thread_id)
    return {
        **values,
        "mail": mail,
        "opened": mail.id,
        "tab": tab,
        "tabs": TABS,
        "thread": thread,
        "has_pictures": request.query.get("pictures") == "yes",
        "is_picture": is_picture,
        "is_unread": "seen" not in mail.flags,
        "findings": mail.findings,
        "preview": await attachment_preview(request, mail),
        "thumbnails": _thumbnails(mail),
        "height": _height(mail),
        **_conversation(thread, mail),
        **await _tab(request, mail, tab),
    }


async def _tab(request: PageRequest, mail: Message, tab: str) -> Values:
    """What only this tab shows."""
    if tab == "agent":
        return await agent_view(request, mail)
    if tab == "source":
        source = await _source(request, mail)
        return {"source": source, "is_cut": mail.size_bytes > _SOURCE_BYTES}
    if tab == "sender":
        returns_to = [h.value for h in mail.headers or () if h.name.lower() == "return-path"]
        return {
            "returns_to": returns_to[:1],
            "verdict": verdict_on_sender(mail),
            "comparison": compare_domains(mail),
            "sender": sender_notes(mail),
        }
    return {}


def _conversation(thread: Thread, mail: Message) -> Values:
    """The other mails of the thread: before and after this one."""
    ids = [other.id for other in thread.messages]
    at = ids.index(mail.id) if mail.id in ids else len(ids)
    return {"earlier": thread.messages[:at], "later": thread.messages[at + 1 :]}


def _height(mail: Message) -> str:
    """How tall a frame has to be, roughly: nothing in it can tell us."""
    size = len(mail.text) + 150 * mail.security.get("remote_images", 0)
    return "tall" if size > _TALL_CHARS else "short" if size < _SHORT_CHARS else ""


def _thumbnails(mail: Message) -> set[str]:
    """The attachments that are shown as small pictures."""
    small = [file for file in mail.attachments if is_picture(file)]
    few = [file.id for file in small if file.size <= _THUMBNAIL_BYTES]
    return set(few[:_MAX_THUMBNAILS])


async def _source(request: PageRequest, mail: Message) -> str:
    """The beginning of the source of a mail."""
    download = await request.call(download_message, message_id=mail.id)
    data = b""
    async for chunk in download.chunks:
        data += chunk
        if len(data) >= _SOURCE_BYTES:
            break
    return data[:_SOURCE_BYTES].decode("utf-8", "replace").replace("\r\n", "\n")


def is_picture(file: Attachment) -> bool:
    return file.content_type in PICTURES and file.size <= _PICTURE_BYTES


async def attachment_preview(request: PageRequest, mail: Message | HeldMail) -> Any:
    """The text of the attachment that was asked for, or why there is none."""
    file = next((f for f in mail.attachments if f.id == request.query.get("preview")), None)
    if file is None:
        return None
    if is_picture(file):
        return {"file": file}
    try:
        found: Any = await request.call(
            get_attachment_content, attachment_id=file.id, format="text", max_chars=_PREVIEW_CHARS
        )
    except MailError as error:
        return {"file": file, "error": str(error)}
    return {"file": file, "text": found.text, "found": found}


async def framed_html(request: PageRequest) -> FramedPage:
    """The HTML of a mail as a document without any capabilities."""
    remote = request.query.get("pictures") == "yes"
    found = await request.call(
        get_message_html, message_id=request.path["message_id"], remote_images=remote
    )
    policy = FRAME_POLICY.format(hosts=" https:" if remote else "")
    parts = {"html": found.html, "styles": found.styles}
    return FramedPage(render("mail/frame.html", **parts, has_marks=False), policy)


async def unsubscribe_list(request: PageRequest) -> Redirect:
    """Unsubscribe from the list that sent a mail."""
    message_id = request.path["message_id"]
    done = await request.call(unsubscribe, message_id=message_id)
    notice = "held" if done.status == "held" else "unsubscribed"
    return Redirect(mail_url(place_of(request), message_id), notice)
