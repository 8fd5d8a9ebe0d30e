"""Outgoing mail: what is held, scheduled, queued, unknown or failed, and the decisions about it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from postroom.blocking import in_thread
from postroom.errors import InvalidInput, MailError, NotFound
from postroom.mail.text.diff import word_diff
from postroom.model.key import Scope
from postroom.model.mail.message import Message
from postroom.model.mail.sending import HeldMail, OutboxEntry
from postroom.operations.mail.attachments import download_attachment
from postroom.operations.mail.messages import get_message
from postroom.operations.outgoing.approvals import approve_message, get_held_mail, reject_message
from postroom.operations.outgoing.drafts import send_draft, update_draft
from postroom.operations.outgoing.outbox import (
    cancel_message,
    list_outbox,
    recipients_by_role,
    retry_message,
)
from postroom.surfaces.web.mail import writing
from postroom.surfaces.web.mail.reading import attachment_preview, is_picture
from postroom.surfaces.web.page import (
    File,
    Form,
    Link,
    Page,
    PageRequest,
    Redirect,
    Section,
    Values,
)
from postroom.surfaces.web.rendering import message_ids

STATUSES = {
    "held": ("Held", "waiting for approval"),
    "scheduled": ("Scheduled", "sent at a set time"),
    "queued": ("Queued", "waiting for the next attempt"),
    "unknown": ("Unknown", "may have been sent; not retried"),
    "failed": ("Failed", "rejected by the server"),
    "bounced": ("Bounced", "sent, then returned"),
    "rejected": ("Rejected", "not approved, or expired"),
}
"""The parts of the outbox, in order: their titles, and what mail in them does."""

ADVICE = {
    "scheduled": "It is sent at the scheduled time. Until then you can change or cancel it.",
    "queued": "It is waiting for the next attempt. If the server keeps refusing it, Postroom "
    "gives up after two days.",
    "unknown": "It may have been delivered: the connection broke before the server confirmed, so "
    "it is not resent automatically. Ask the recipient. If it did not arrive, send it again; if "
    "you send it without asking, it may arrive twice.",
    "failed": "The server rejected it, and it is not retried. Read the server's response: if the "
    "address is wrong, edit the message and send it to the right one; otherwise send it again.",
    "bounced": "It was sent, and the recipient's server returned it later. Check the address, "
    "then send it again, or edit it first.",
    "rejected": "It was not sent. To send a different message instead, edit it.",
    "captured": "It was not sent: this Postroom has no relay. Set POSTROOM_RELAY_URL, then send it "
    "again.",
}
"""What to do about mail with a status."""

_ROWS = 50
_FEW_ROWS = 10
_MAX_HELD = 100
_MAX_NAMED = 5
_MAX_CHARS = 100_000
_STOPPABLE = ("held", "scheduled", "queued")
_RETRIABLE = ("failed", "bounced", "unknown", "captured")
_REWRITABLE = ("failed", "bounced", "rejected")


def statuses_of(request: PageRequest) -> list[str]:
    """The visible statuses: a person who can only approve sees held mail."""
    return list(STATUSES) if request.may(Scope.READ) else ["held"]


async def count(request: PageRequest, status: str) -> int:
    """How much mail of a status there is."""
    return (await request.call(list_outbox, status=status, limit=1)).total


async def outgoing(request: PageRequest) -> Values:
    """The outbox by status, or one status of it from a cursor on."""
    chosen = request.query.get("status", "")
    chosen = chosen if chosen in STATUSES else ""
    statuses = (
        statuses_of(request) if not chosen else list(dict.fromkeys((chosen, *statuses_of(request))))
    )
    parts = {}
    for status in statuses:
        many = _ROWS if status == chosen or status == "held" else _FEW_ROWS
        place = {"limit": many, **request.cursor}
        rows = place if status == chosen else {"limit": 1 if chosen else many}
        parts[status] = await request.call(list_outbox, status=status, **rows)
    return {
        "parts": {chosen: parts[chosen]} if chosen else parts,
        "counts": {status: page.total for status, page in parts.items()},
        "statuses": STATUSES,
        "advice": ADVICE,
        "chosen": chosen,
        "is_paused": any(page.is_paused for page in parts.values()),
        "now": request.app.services.clock(),
        "span": span,
    }


def span(start: datetime, end: datetime) -> str:
    """The duration between two moments, in the largest unit that fits."""
    passed = max(end - start, timedelta())
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        number = int(passed.total_seconds()) // unit
        if number > (1 if name == "day" else 0):
            return f"{number} {name}{'s' if number > 1 else ''}"
    return "less than a minute"


async def outgoing_mail(request: PageRequest) -> Values:
    """One outgoing mail, with the decision that it waits for."""
    message_id = request.path["message_id"]
    mail: HeldMail | Message
    try:
        mail = await request.call(get_held_mail, message_id=message_id)
    except NotFound:
        if not request.may(Scope.READ):
            raise
        mail = await request.call(get_message, message_id=message_id, max_chars=_MAX_CHARS)
    may_send = request.may(Scope.SEND) and request.may(Scope.READ)
    return {
        "mail": mail,
        "recipients": recipients_by_role(mail),
        "message_id": message_id,
        "may_edit": may_send and mail.status in _STOPPABLE,
        "may_retry": may_send and mail.status in _RETRIABLE,
        "may_rewrite": may_send and mail.status in _REWRITABLE,
        "advice": ADVICE.get(mail.status or "", ""),
        "entry": await _entry(request, mail.status, message_id),
        "answered": await _answered(request, mail),
        "subjects": await _subjects(request, mail),
        "changes": await _changes(mail) if isinstance(mail, HeldMail) else None,
        "preview": await attachment_preview(request, mail) if request.may(Scope.READ) else None,
        "is_picture": is_picture,
        "note": request.form.get("note", ""),
        "is_next": request.query.get("notice", "").endswith(", next"),
        "now": request.app.services.clock(),
        "span": span,
        **(await _neighbours(request, message_id) if mail.status == "held" else {"place": None}),
    }


async def _entry(request: PageRequest, status: str | None, message_id: str) -> OutboxEntry | None:
    """The entry of a queued mail: its attempts, and when the next one is."""
    if status != "queued" or not request.may(Scope.READ):
        return None
    page = await request.call(list_outbox, status=status, limit=_MAX_HELD)
    return next((entry for entry in page.results if entry.message_id == message_id), None)


async def _answered(request: PageRequest, mail: HeldMail | Message) -> Message | None:
    """The mail that a held one answers, if the person may read it."""
    if not isinstance(mail, HeldMail) or not mail.answers or not request.may(Scope.READ):
        return None
    try:
        return await request.call(get_message, message_id=mail.answers, max_chars=_MAX_CHARS)
    except NotFound:
        return None


async def _subjects(request: PageRequest, mail: HeldMail | Message) -> dict[str, str]:
    """The subjects of messages that the reasons of a hold name, as far as they can be read."""
    named = message_ids(" ".join(mail.hold.reasons)) if mail.hold else []
    found = {}
    for message_id in list(dict.fromkeys(named))[:_MAX_NAMED] if request.may(Scope.READ) else ():
        with suppress(NotFound):
            message = await request.call(get_message, message_id=message_id, max_chars=1)
            found[message_id] = f"“{message.subject or '(no subject)'}”"
    return found


async def _changes(mail: HeldMail) -> Values | None:
    """What differs from the mail before this one."""
    before = mail.replaces
    if before is None:
        return None
    text = mail.text[:_MAX_CHARS]
    recipients = tuple(recipient.address for recipient in mail.recipients)
    files = tuple(file.filename for file in mail.attachments)
    lists = {"Recipients": (before.recipients, recipients), "Files": (before.files, files)}
    return {
        "before": before,
        "lists": {
            name: ([one for one in old if one not in new], [one for one in new if one not in old])
            for name, (old, new) in lists.items()
            if set(old) != set(new)
        },
        "subject": word_diff(before.subject, mail.subject)
        if before.subject != mail.subject
        else [],
        "text": await in_thread(word_diff, before.text, text),
        "is_same_text": before.text == text,
    }


async def _neighbours(request: PageRequest, message_id: str) -> Values:
    """The held mail before and after this one, and its place among all of it."""
    page = await request.call(list_outbox, status="held", limit=_MAX_HELD)
    ids = [entry.message_id for entry in page.results]
    if message_id not in ids:
        return {"place": None}
    at = ids.index(message_id)
    return {
        "place": {
            "at": at + 1,
            "total": page.total,
            "before": ids[at - 1] if at else None,
            "after": ids[at + 1] if at + 1 < len(ids) else None,
        }
    }


async def approve(request: PageRequest) -> Redirect:
    """Approve a held mail, and show the next one."""
    place = (await _neighbours(request, request.path["message_id"]))["place"]
    sha256 = request.form.get("sha256", "")
    await request.call(approve_message, message_id=request.path["message_id"], sha256=sha256)
    return _to_next(place, "approved")


async def reject(request: PageRequest) -> Redirect:
    """Reject a held mail, and show the next one."""
    place = (await _neighbours(request, request.path["message_id"]))["place"]
    given = {name: request.form[name] for name in ("sha256", "note") if request.form.get(name)}
    await request.call(reject_message, message_id=request.path["message_id"], **given)
    return _to_next(place, "rejected")


def _to_next(place: Values | None, notice: str) -> Redirect:
    """The next held mail in the order of the list, or the list if there is none."""
    after = place and (place["after"] or place["before"])
    return (
        Redirect(f"/outgoing/{after}", f"{notice}, next")
        if after
        else Redirect("/outgoing", notice)
    )


async def edit(request: PageRequest) -> Redirect:
    """Cancel a mail that was not sent, and show its draft."""
    message_id = request.path["message_id"]
    sent = await request.call(cancel_message, message_id=message_id)
    if sent.draft_id is None:
        return Redirect(f"/outgoing/{message_id}", "stopped")
    return Redirect(f"/drafts/{sent.draft_id}", "taken back")


async def reschedule(request: PageRequest) -> Redirect:
    """Send a scheduled mail at another time, or now: it is cancelled and sent again."""
    message_id = request.path["message_id"]
    when = None if request.form.get("do") == "now" else _coming_time(request)
    sent = await request.call(cancel_message, message_id=message_id)
    if sent.draft_id is None:
        return Redirect(f"/outgoing/{message_id}", "stopped")
    try:
        await request.call(update_draft, draft_id=sent.draft_id, send_at=when)
        again = await request.call(send_draft, draft_id=sent.draft_id)
    except MailError:
        return Redirect(f"/drafts/{sent.draft_id}", "not sent")
    notice = again.status if again.status in ("held", "scheduled", "queued") else "sent"
    return Redirect(f"/outgoing/{again.message_id}", notice)


def _coming_time(request: PageRequest) -> str:
    """The chosen time, checked before the mail is cancelled. Raises InvalidInput."""
    try:
        moment = datetime.fromisoformat(request.form.get("send_at", "")).replace(tzinfo=UTC)
    except ValueError:
        raise InvalidInput("choose another time, or send it now") from None
    if moment <= request.app.services.clock():
        raise InvalidInput("this time is in the past; choose a later one, or send it now")
    return moment.isoformat()


OUTGOING_MAIL = Page("/outgoing/{message_id}", "outgoing_mail.html", outgoing_mail)
DRAFT = Page("/drafts/{draft_id}", "mail/compose.html", writing.draft)

SECTION = Section(
    links=(Link("Outgoing", "/outgoing", scope=None), Link("Drafts", "/drafts")),
    pages=(
        Page("/outgoing", "outgoing.html", outgoing),
        OUTGOING_MAIL,
        Page("/drafts", "drafts.html", writing.drafts),
        DRAFT,
        Page("/compose/people", "mail/people.html", writing.people),
    ),
    files=(File("/attachments/{attachment_id}", download_attachment),),
    forms=(
        Form("/outgoing/{message_id}/approve", approve, OUTGOING_MAIL),
        Form("/outgoing/{message_id}/reject", reject, OUTGOING_MAIL),
        Form("/outgoing/{message_id}/edit", edit, OUTGOING_MAIL),
        Form("/outgoing/{message_id}/reschedule", reschedule, OUTGOING_MAIL),
        Form(
            "/outgoing/{message_id}/retry",
            retry_message,
            OUTGOING_MAIL,
            redirect_to="/outgoing",
            notice="retried",
        ),
        Form("/drafts/{draft_id}", writing.send, DRAFT),
        Form("/drafts/{draft_id}/discard", writing.discard, DRAFT),
    ),
    notices={
        "approved": "Approved. The message is sent now, or at its scheduled time.",
        "rejected": "Rejected. The message is not sent, and its sender is notified.",
        "approved, next": "Approved: the other message is sent. Below is the next one.",
        "rejected, next": "Rejected: the other message is not sent. Below is the next one.",
        "taken back": "Moved to drafts. Edit it and send it; it is checked again then.",
        "not sent": "Moved to drafts, not sent. Choose another time and send it again.",
        "retried": "Sending again. It may be held for approval first.",
        "sent": "Sent.",
        "stopped": "Cancelled for the recipients who had not received it yet.",
        "discarded": "Draft discarded.",
    },
)
