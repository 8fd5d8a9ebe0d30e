"""One mail: as a person sees it, its text, what an agent gets, its source, and who sent it."""

from __future__ import annotations

import json
from typing import Any

from postroom.errors import MailError
from postroom.model.message import Attachment, Message
from postroom.operations.attachments import download_message, get_attachment_content
from postroom.operations.messages import PICTURES, get_message, get_message_html
from postroom.operations.threads import get_thread
from postroom.surfaces.web.mail.listing import panes
from postroom.surfaces.web.mail.wording import kept_out, sender_findings
from postroom.surfaces.web.page import Framed, Values, Visit
from postroom.surfaces.web.rendering import render

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
_CHARS_PER_TOKEN = 4

_POLICY = (
    "default-src 'none'; img-src data:{hosts}; style-src 'unsafe-inline'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'self'; "
    "sandbox allow-popups allow-popups-to-escape-sandbox"
)


async def message(visit: Visit) -> Values:
    """A mail beside the list that it was chosen from."""
    tab = visit.query.get("tab", "mail")
    tab = tab if tab in TABS else "mail"
    wants = {"include_html": tab == "mail", "include_headers": tab == "sender"}
    mail = await visit.call(
        get_message, message_id=visit.path["message_id"], max_chars=_MAX_CHARS, **wants
    )
    values = await panes(visit)
    thread = await visit.call(get_thread, thread_id=mail.thread_id)
    return {
        **values,
        "mail": mail,
        "opened": mail.id,
        "tab": tab,
        "tabs": TABS,
        "thread": thread,
        "has_pictures": visit.query.get("pictures") == "yes",
        "is_picture": _is_picture,
        "is_unread": "seen" not in mail.flags,
        "findings": mail.findings,
        "preview": await _preview(visit, mail),
        **await _tab(visit, mail, tab),
    }


async def _tab(visit: Visit, mail: Message, tab: str) -> Values:
    """What only this tab shows."""
    if tab == "agent":
        answers = {
            "read_mail": await visit.tool_text(visit.ctx, "read_mail", {"ids": [mail.id]}),
            "get_message": await visit.tool_text(visit.ctx, "get_message", {"message_id": mail.id}),
        }
        shown = [
            {"tool": name, "json": _indented(text), "tokens": -(-len(text) // _CHARS_PER_TOKEN)}
            for name, text in answers.items()
        ]
        return {"answers": shown, "kept_out": kept_out(mail)}
    if tab == "source":
        source = await _source(visit, mail)
        return {"source": source, "is_cut": mail.size_bytes > _SOURCE_BYTES}
    if tab == "sender":
        returns_to = [h.value for h in mail.headers or () if h.name.lower() == "return-path"]
        return {"returns_to": returns_to[:1], "sender": sender_findings(mail)}
    return {}


def _indented(text: str) -> str:
    """The same JSON on several lines: the values are those that an agent gets."""
    return json.dumps(json.loads(text), ensure_ascii=False, indent=2)


async def _source(visit: Visit, mail: Message) -> str:
    """The beginning of the source of a mail."""
    download = await visit.call(download_message, message_id=mail.id)
    data = b""
    async for chunk in download.chunks:
        data += chunk
        if len(data) >= _SOURCE_BYTES:
            break
    return data[:_SOURCE_BYTES].decode("utf-8", "replace").replace("\r\n", "\n")


def _is_picture(file: Attachment) -> bool:
    return file.content_type in PICTURES and file.size <= _PICTURE_BYTES


async def _preview(visit: Visit, mail: Message) -> Any:
    """The text of the attachment that was asked for, or why there is none."""
    file = next((f for f in mail.attachments if f.id == visit.query.get("preview")), None)
    if file is None:
        return None
    if _is_picture(file):
        return {"file": file}
    try:
        found: Any = await visit.call(
            get_attachment_content, attachment_id=file.id, format="text", max_chars=_PREVIEW_CHARS
        )
    except MailError as error:
        return {"file": file, "error": str(error)}
    return {"file": file, "text": found.text, "found": found}


async def framed_html(visit: Visit) -> Framed:
    """The HTML of a mail as a document that can do nothing but be read."""
    remote = visit.query.get("pictures") == "yes"
    found = await visit.call(
        get_message_html, message_id=visit.path["message_id"], remote_images=remote
    )
    policy = _POLICY.format(hosts=" https:" if remote else "")
    return Framed(render("mail/frame.html", html=found.html), policy)
