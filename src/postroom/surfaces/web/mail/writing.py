"""Writing: one editor for new mail, replies, forwards and drafts; its drafts are saved and sent."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.mail.addresses import canonical_address, format_address, parse_address_list
from postroom.model.account import Identity
from postroom.model.key import Scope
from postroom.model.mail.message import Message
from postroom.model.mail.sending import Draft, Sent
from postroom.operations.mail.messages import get_message
from postroom.operations.outgoing.drafts import (
    delete_draft,
    find_contacts,
    get_draft,
    list_drafts,
    save_draft,
    send_draft,
)
from postroom.operations.outgoing.identities import list_identities
from postroom.operations.outgoing.sending import preview_forward, preview_reply, send_message
from postroom.surfaces.http import safe_media_type
from postroom.surfaces.web.page import PageRequest, Redirect, Values

RECIPIENTS = ("to", "cc", "bcc")
_FIELDS = (*RECIPIENTS, "from", "subject", "body_text", "body_html", "send_at", "answers")
_ROWS = 50
_MAX_IDENTITIES = 100
_MAX_CHARS = 100_000
_DRAFT_ID = re.compile(r"drf_[0-9a-z]{6,60}")
_FILE = "attach-"
"""Fields with this prefix name the attachments of the original mail that go with a new one."""

_NOTICES = ("held", "scheduled", "captured", "queued")
_STARTS = ("reply", "forward", "again")
"""Queries that name the mail that a new one begins with."""


def lines_of(text: str) -> list[str]:
    """The lines of a field that are not empty."""
    return [line.strip() for line in text.split("\n") if line.strip()]


async def compose(request: PageRequest) -> Values:
    """A new mail, a reply or a forward. If its draft was saved meanwhile, it is shown instead."""
    draft_id = request.query.get("draft") or request.form.get("draft", "")
    if not _DRAFT_ID.fullmatch(draft_id):
        return await _new_mail(request, request.ctx.new_id("drf"))
    try:
        found = await request.call(get_draft, draft_id=draft_id)
    except NotFound:
        return await _new_mail(request, draft_id)
    return await _editor(request, found.id, found)


async def draft(request: PageRequest) -> Values:
    """A draft in the editor; what was typed stays if it was refused."""
    draft_id = request.path["draft_id"]
    try:
        found = await request.call(get_draft, draft_id=draft_id)
    except NotFound:
        if not request.posted.fields:
            raise
        return await _new_mail(request, draft_id)
    return await _editor(request, draft_id, found)


async def _new_mail(request: PageRequest, draft_id: str) -> Values:
    kind = next((name for name in _STARTS if request.query.get(name)), "new")
    given: dict[str, str] = {}
    original = None
    if kind != "new":
        original = await request.call(
            get_message, message_id=request.query[kind], max_chars=_MAX_CHARS
        )
        given = await _beginning(request, kind, original)
    return await _editor(request, draft_id, None, given, original, kind)


async def _beginning(request: PageRequest, kind: str, original: Message) -> dict[str, str]:
    """The fields with which a mail begins that answers, forwards or repeats another."""
    if kind == "again":
        lists = {name: getattr(original, f"{name}_addresses") for name in RECIPIENTS}
        written = {name: ", ".join(addresses) for name, addresses in lists.items()}
        mail = {"subject": original.subject, "body_text": original.text}
        return {**written, **mail, "from": original.from_address}
    if kind == "forward":
        mail_in = await request.call(preview_forward, message_id=original.id)
        return {"subject": mail_in.subject, "body_text": f"\n\n{mail_in.quoted}"}
    is_all = request.query.get("all") == "yes"
    reply = await request.call(preview_reply, message_id=original.id, reply_all=is_all)
    quoted = f"\n\n{reply.quoted}" if request.query.get("quote") == "yes" else ""
    return {
        "to": ", ".join(reply.to),
        "cc": ", ".join(reply.cc),
        "subject": reply.subject,
        "body_text": quoted,
        "answers": original.id,
    }


async def _editor(
    request: PageRequest,
    draft_id: str,
    found: Draft | None,
    given: dict[str, str] | None = None,
    original: Message | None = None,
    kind: str = "draft",
) -> Values:
    """The fields of the editor: as they are stored or begin, or as they were sent last."""
    identities = (await request.call(list_identities, limit=_MAX_IDENTITIES)).results
    if found is not None:
        given, original = _stored(found), await _answered(request, found)
    begin = {**dict.fromkeys(_FIELDS, ""), **(given or {})}
    begin["from"] = begin["from"] or _own_address(identities, found, original)
    typed = dict.fromkeys(("answers",), "") | dict(request.form) if request.posted.fields else {}
    limits = request.app.settings.limits
    now = request.app.services.clock()
    return {
        "draft_id": draft_id,
        "draft": found,
        "given": {**begin, **{name: typed[name] for name in _FIELDS if name in typed}},
        "has_html": found is not None and found.body_html is not None,
        "has_text": found is None or found.body_html is None or bool(found.body_text),
        "kind": kind,
        "original": original,
        "identities": identities,
        "query": {n: request.query[n] for n in (*_STARTS, "all") if request.query.get(n)},
        "lost_files": [file.filename for file in request.posted.files],
        "limits": limits,
        "is_late": found is not None and found.send_at is not None and found.send_at <= now,
        "can_save": request.may(Scope.WRITE) and request.may(Scope.READ),
        "can_send": request.may(Scope.SEND),
    }


def _stored(found: Draft) -> dict[str, str]:
    """A draft as the fields of the editor."""
    return {
        **{name: ", ".join(getattr(found, name)) for name in RECIPIENTS},
        "from": found.from_ or "",
        "subject": found.subject,
        "body_text": found.body_text or "",
        "body_html": found.body_html or "",
        "answers": found.in_reply_to or found.thread_id or "",
        "send_at": found.send_at.strftime("%Y-%m-%dT%H:%M") if found.send_at else "",
    }


async def _answered(request: PageRequest, found: Draft) -> Message | None:
    """The mail that a draft answers, if it is here."""
    answers = found.in_reply_to or ""
    if not answers.startswith("msg_"):
        return None
    try:
        return await request.call(get_message, message_id=answers, max_chars=_MAX_CHARS)
    except NotFound:
        return None


def _own_address(
    identities: tuple[Identity, ...], found: Draft | None, original: Message | None
) -> str:
    """The address to send from: the one that the original was sent to, or that of its inbox."""
    holder = found or original
    own = [one for one in identities if holder is not None and one.inbox_id == holder.inbox_id]
    written_to = {canonical_address(a.address) for a in original.addresses} if original else set()
    own.sort(key=lambda one: (canonical_address(one.email) not in written_to, not one.is_default))
    return next((one.email for one in (*own, *identities)), "")


async def people(request: PageRequest) -> Values:
    """Addresses that begin with what is typed, of those that the sending inbox knows."""
    typed, sender = (request.query.get(name, "").strip()[:254] for name in ("q", "from"))
    own = (await request.call(list_identities, limit=_MAX_IDENTITIES)).results if typed else ()
    inboxes = [one.inbox_id for one in own if sender in ("", one.email)]
    if not inboxes:
        return {"people": ()}
    return {"people": await request.call(find_contacts, inbox_id=inboxes[0], q=typed)}


async def drafts(request: PageRequest) -> Values:
    """Mail that is not sent."""
    return {"page": await request.call(list_drafts, limit=_ROWS, **request.cursor)}


async def send(request: PageRequest) -> Redirect:
    """Save the draft, and send it unless the form only saves: sent twice, it leaves once.

    A mail that was sent already cannot be saved any more; who asks again is led to it.
    """
    form, draft_id = request.form, _draft_id(request)
    if form.get("do") == "discard":
        return await discard(request)
    if not request.may(Scope.WRITE):
        return _sent(await _send_unsaved(request, draft_id))
    is_sent = form.get("do", "send") == "send" and "remove" not in form
    try:
        await _save_again(request, draft_id)
    except NotFound:
        if not is_sent or not await _was_sent(request, draft_id):
            raise
    if not is_sent:
        return Redirect(f"/drafts/{draft_id}", "saved")
    return _sent(await request.call(send_draft, draft_id=draft_id))


async def discard(request: PageRequest) -> Redirect:
    """Delete a draft."""
    await request.call(delete_draft, draft_id=_draft_id(request))
    return Redirect("/drafts", "discarded")


def _draft_id(request: PageRequest) -> str:
    given = request.path.get("draft_id") or request.form.get("draft", "")
    return given if _DRAFT_ID.fullmatch(given) else request.ctx.new_id("drf")


async def _was_sent(request: PageRequest, draft_id: str) -> bool:
    """Whether a draft is there, and cannot be read because it was sent."""
    try:
        await request.call(get_draft, draft_id=draft_id)
    except NotFound as gone:
        return "was sent" in str(gone)
    return False


async def _save_again(request: PageRequest, draft_id: str) -> None:
    """Save a draft; if it was saved at the same moment, once more."""
    try:
        await _save(request, draft_id)
    except Conflict:
        await _save(request, draft_id)


async def _save(request: PageRequest, draft_id: str) -> Draft:
    form, more = request.form, dict[str, Any]()
    if "remove" in form:
        more = {"remove_file": form["remove"], "file_count": form.get("file_count", "")}
    answers = form.get("answers", "")
    named = "thread_id" if answers.startswith("thr_") else "in_reply_to"
    bodies = {name: form[name] for name in ("body_text", "body_html") if name in form}
    return await request.call(
        save_draft,
        draft_id=draft_id,
        subject=_one_line(form.get("subject", "")),
        add_files=_files_of(request),
        **_common(request),
        **bodies,
        **({named: answers} if answers else {}),
        **more,
    )


async def _send_unsaved(request: PageRequest, draft_id: str) -> Sent:
    """Send without a draft, for those who may not write."""
    form = request.form
    answers = {"in_reply_to": form["answers"]} if form.get("answers") else {}
    return await request.call(
        send_message,
        subject=_one_line(form.get("subject", "")),
        body_text=form.get("body_text", ""),
        attachments=_files_of(request),
        idempotency_key=draft_id,
        **_common(request),
        **answers,
    )


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def _common(request: PageRequest) -> dict[str, Any]:
    """Sender, recipients and time. The field of a browser has no time zone; its label says UTC."""
    form = request.form
    send_at = form.get("send_at", "")
    return {
        **{name: _addresses(form.get(name, "")) for name in RECIPIENTS},
        **({"from": form["from"]} if form.get("from") else {}),
        **({"send_at": f"{send_at}Z"} if send_at else {}),
    }


def _addresses(text: str) -> list[str]:
    """The addresses of a field, by commas or lines; what cannot be read yet stays as it is."""
    found: list[str] = []
    for line in lines_of(text):
        typed = line.strip(", ")
        try:
            found += [format_address(*pair) for pair in parse_address_list(typed, field="to")]
        except InvalidInput:
            found += [typed] if typed else []
    return found


def _files_of(request: PageRequest) -> list[dict[str, Any]]:
    """The files that were chosen, and those of the original mail that go along.

    Raises InvalidInput.
    """
    form, files, most = (
        request.form,
        request.posted.files,
        request.app.settings.limits.attachments_count,
    )
    if len(files) > most:
        raise InvalidInput(f"choose at most {most} files for one message")
    kept = [
        {"attachment_id": name.removeprefix(_FILE), **({"filename": value} if value else {})}
        for name, value in form.items()
        if name.startswith(_FILE)
    ]
    chosen = [
        {
            "filename": file.filename[:255],
            "content_type": safe_media_type(file.content_type),
            "content": b64encode(file.content).decode(),
        }
        for file in files
    ]
    return kept + chosen


def _sent(sent: Sent) -> Redirect:
    notice = sent.status if sent.status in _NOTICES else "sent"
    place = "outgoing" if notice in ("held", "scheduled", "queued") else "mail"
    return Redirect(f"/{place}/{sent.message_id}", notice)
