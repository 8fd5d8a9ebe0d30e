"""Writing: a new mail, a reply or a forward, with files; sent now, later, or kept as a draft."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from postroom.errors import InvalidInput
from postroom.model.sending import Sent
from postroom.operations.agent.writing import forward_mail
from postroom.operations.drafts import create_draft
from postroom.operations.identities import list_identities
from postroom.operations.messages import get_message
from postroom.operations.sending import forward_message, preview_reply, send_message
from postroom.surfaces.downloads import safe_media_type
from postroom.surfaces.web.page import Leads, Values, Visit

_RECIPIENTS = ("to", "cc", "bcc")
_FIELDS = (*_RECIPIENTS, "from", "subject", "body_text", "send_at")
_MOST_FILES = 20
_SAID = {
    "held": "held",
    "scheduled": "scheduled",
    "captured": "captured",
    "queued": "queued",
}


async def compose(visit: Visit) -> Values:
    """The form; what was typed stays if it was refused, but a browser forgets chosen files."""
    answered, forwarded = (visit.query.get(name, "") for name in ("reply", "forward"))
    given = dict.fromkeys(_FIELDS, "")
    original = None
    if answered or forwarded:
        original = await visit.call(get_message, message_id=answered or forwarded)
        given["subject"] = original.subject
    if answered:
        is_all = visit.query.get("all") == "yes"
        reply = await visit.call(preview_reply, message_id=answered, reply_all=is_all)
        given |= {"to": "\n".join(reply.to), "cc": "\n".join(reply.cc), "subject": reply.subject}
    identities = await visit.call(list_identities, limit=100)
    if original is not None:
        own = [one for one in identities.results if one.inbox_id == original.inbox_id]
        given["from"] = next((one.email for one in own if one.is_default), given["from"])
    return {
        "given": {**given, **{n: v for n, v in visit.form.items() if n in _FIELDS}},
        "kind": "reply" if answered else "forward" if forwarded else "new",
        "original": original,
        "identities": identities.results,
        "query": {name: visit.query[name] for name in ("reply", "forward", "all")
                  if visit.query.get(name)},
        "lost_files": [file.filename for file in visit.posted.files],
    }  # fmt: skip


def lines_of(text: str) -> list[str]:
    """The lines of a field that are not empty."""
    return [line.strip() for line in text.split("\n") if line.strip()]


def _mail_of(visit: Visit) -> dict[str, Any]:
    """What the form says. Raises InvalidInput."""
    form, files = visit.form, visit.posted.files
    if len(files) > _MOST_FILES:
        raise InvalidInput(f"choose at most {_MOST_FILES} files for one mail")
    attachments = [
        {
            "filename": file.filename[:255],
            "content_type": safe_media_type(file.content_type),
            "content": b64encode(file.content).decode(),
        }
        for file in files
    ]
    # The field of a browser has no time zone; its label says UTC.
    send_at = form.get("send_at", "")
    return {
        **{name: lines_of(form.get(name, "")) for name in _RECIPIENTS},
        "body_text": form.get("body_text", ""),
        "attachments": attachments,
        **({"send_at": f"{send_at}Z"} if send_at else {}),
    }


async def send(visit: Visit) -> Leads:
    """Send the mail, or keep it as a draft."""
    mail, is_draft = _mail_of(visit), visit.form.get("do") == "draft"
    if forwarded := visit.query.get("forward"):
        return await _forward(visit, mail, forwarded, is_draft=is_draft)
    mail["subject"] = visit.form.get("subject", "")
    if visit.form.get("from"):
        mail["from"] = visit.form["from"]
    if visit.query.get("reply"):
        mail["in_reply_to"] = visit.query["reply"]
    if is_draft:
        draft = await visit.call(create_draft, **mail)
        return Leads(f"/drafts/{draft.id}", "saved")
    return _sent(await visit.call(send_message, **mail))


async def _forward(visit: Visit, mail: dict[str, Any], message_id: str, *, is_draft: bool) -> Leads:
    if not is_draft:
        return _sent(await visit.call(forward_message, message_id=message_id, **mail))
    if mail.pop("cc") or mail.pop("bcc"):
        raise InvalidInput("the draft of a forward takes recipients in To; put all of them there")
    body = mail.pop("body_text")
    made = await visit.call(forward_mail, ids=[message_id], body=body, draft=True, **mail)
    return Leads(f"/drafts/{made.results[0].id}", "saved")


def _sent(sent: Sent) -> Leads:
    says = _SAID.get(sent.status, "sent")
    place = "outgoing" if says in ("held", "scheduled", "queued") else "mail"
    return Leads(f"/{place}/{sent.message_id}", says)
