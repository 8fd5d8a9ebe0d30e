"""One mail: as a person sees it, its text, what an agent gets, its source, and who sent it."""

from __future__ import annotations

from typing import Any

from postroom.errors import MailError
from postroom.model.message import Attachment, Message, Thread
from postroom.model.sending import HeldMail
from postroom.operations.mail.attachments import download_message, get_attachment_content
from postroom.operations.mail.messages import PICTURES, get_message, get_message_html
from postroom.operations.mail.threads import get_thread
from postroom.operations.mail.unsubscribing import unsubscribe
from postroom.surfaces.web.mail.agent_view import FRAME_POLICY, agent_view
from postroom.surfaces.web.mail.listing import mail_url, panes, place_of
from postroom.surfaces.web.mail.sender import compare_domains, sender_findings, verdict_on_sender
from postroom.surfaces.web.page import Framed, Redirect, Values, Visit
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
_THUMBNAIL_BYTES, _MAX_THUMBNAILS = 2_097_152, 12
_TALL_CHARS, _SHORT_CHARS = 2_500, 300


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
        "is_picture": is_picture,
        "is_unread": "seen" not in mail.flags,
        "findings": mail.findings,
        "preview": await attachment_preview(visit, mail),
        "thumbnails": _thumbnails(mail),
        "height": _height(mail),
        **_conversation(thread, mail),
        **await _tab(visit, mail, tab),
    }


async def _tab(visit: Visit, mail: Message, tab: str) -> Values:
    """What only this tab shows."""
    if tab == "agent":
        return await agent_view(visit, mail)
    if tab == "source":
        source = await _source(visit, mail)
        return {"source": source, "is_cut": mail.size_bytes > _SOURCE_BYTES}
    if tab == "sender":
        returns_to = [h.value for h in mail.headers or () if h.name.lower() == "return-path"]
        return {
            "returns_to": returns_to[:1],
            "verdict": verdict_on_sender(mail),
            "comparison": compare_domains(mail),
            "sender": sender_findings(mail),
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


async def _source(visit: Visit, mail: Message) -> str:
    """The beginning of the source of a mail."""
    download = await visit.call(download_message, message_id=mail.id)
    data = b""
    async for chunk in download.chunks:
        data += chunk
        if len(data) >= _SOURCE_BYTES:
            break
    return data[:_SOURCE_BYTES].decode("utf-8", "replace").replace("\r\n", "\n")


def is_picture(file: Attachment) -> bool:
    return file.content_type in PICTURES and file.size <= _PICTURE_BYTES


async def attachment_preview(visit: Visit, mail: Message | HeldMail) -> Any:
    """The text of the attachment that was asked for, or why there is none."""
    file = next((f for f in mail.attachments if f.id == visit.query.get("preview")), None)
    if file is None:
        return None
    if is_picture(file):
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
    policy = FRAME_POLICY.format(hosts=" https:" if remote else "")
    parts = {"html": found.html, "styles": found.styles}
    return Framed(render("mail/frame.html", **parts, has_marks=False), policy)


async def leave_list(visit: Visit) -> Redirect:
    """Unsubscribe from the list that sent a mail."""
    message_id = visit.path["message_id"]
    done = await visit.call(unsubscribe, message_id=message_id)
    notice = "held" if done.status == "held" else "unsubscribed"
    return Redirect(mail_url(place_of(visit.query), message_id), notice)
