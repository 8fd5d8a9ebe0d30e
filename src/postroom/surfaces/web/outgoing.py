"""Outgoing mail: what is held, scheduled, queued, unknown or failed, and drafts made from it."""

from __future__ import annotations

from postroom.errors import NotFound
from postroom.model.key import Scope
from postroom.model.message import Message
from postroom.model.sending import HeldMail
from postroom.operations.approvals import get_held_mail
from postroom.operations.drafts import (
    delete_draft,
    get_draft,
    list_drafts,
    send_draft,
    update_draft,
)
from postroom.operations.messages import get_message
from postroom.operations.outbox import cancel_message, list_outbox, recipients_by_role
from postroom.surfaces.web.mail.writing import lines_of
from postroom.surfaces.web.page import Leads, Values, Visit

STATUSES = {
    "held": ("Held", "waits for a decision"),
    "scheduled": ("Scheduled", "leaves at its time"),
    "queued": ("Queued", "waits for the next attempt"),
    "unknown": ("Unknown", "perhaps sent; not tried again"),
    "failed": ("Failed", "was refused for good"),
}
"""The parts of the outbox, in order: their titles, and what mail in them does."""

_ROWS = 50
_MAX_CHARS = 100_000
_STOPPABLE = ("held", "scheduled", "queued")
_RETRIABLE = ("failed", "bounced", "unknown", "captured")
_RECIPIENTS = ("to", "cc", "bcc")


async def overview(visit: Visit) -> Values:
    """How much waits, and how much needs the person."""
    counts = {status: await count(visit, status) for status in _statuses(visit)}
    drafts = (await visit.call(list_drafts, limit=1)).total if visit.may(Scope.READ) else 0
    return {"counts": counts, "statuses": STATUSES, "drafts": drafts}


def _statuses(visit: Visit) -> list[str]:
    """What the person may see: somebody who only approves sees held mail."""
    return list(STATUSES) if visit.may(Scope.READ) else ["held"]


async def count(visit: Visit, status: str) -> int:
    """How much mail of a status there is."""
    return (await visit.call(list_outbox, status=status, limit=1)).total


async def outgoing(visit: Visit) -> Values:
    """The outbox by status, or one status of it from a cursor on."""
    chosen = visit.query.get("status", "")
    statuses = [chosen] if chosen in STATUSES else _statuses(visit)
    place = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") and chosen else {}
    parts = {s: await visit.call(list_outbox, status=s, limit=_ROWS, **place) for s in statuses}
    return {"parts": parts, "statuses": STATUSES, "chosen": chosen}


async def outgoing_mail(visit: Visit) -> Values:
    """One outgoing mail, with the decision that it waits for."""
    message_id = visit.path["message_id"]
    mail: HeldMail | Message
    try:
        mail = await visit.call(get_held_mail, message_id=message_id)
    except NotFound:
        if not visit.may(Scope.READ):
            raise
        mail = await visit.call(get_message, message_id=message_id, max_chars=_MAX_CHARS)
    may_send = visit.may(Scope.SEND) and visit.may(Scope.READ)
    return {
        "mail": mail,
        "recipients": recipients_by_role(mail),
        "message_id": message_id,
        "may_edit": may_send and mail.status in _STOPPABLE,
        "may_retry": may_send and mail.status in _RETRIABLE,
    }


async def edit(visit: Visit) -> Leads:
    """Take a held mail back, and lead to its draft."""
    message_id = visit.path["message_id"]
    sent = await visit.call(cancel_message, message_id=message_id)
    if sent.draft_id is None:
        return Leads(f"/outgoing/{message_id}", "stopped")
    return Leads(f"/drafts/{sent.draft_id}", "taken back")


async def drafts(visit: Visit) -> Values:
    """Mail that is not sent."""
    place = {"cursor": visit.query["cursor"]} if visit.query.get("cursor") else {}
    return {"page": await visit.call(list_drafts, limit=_ROWS, **place)}


async def draft(visit: Visit) -> Values:
    """A draft in a form; what was typed before stays if it was refused."""
    found = await visit.call(get_draft, draft_id=visit.path["draft_id"])
    body = "body_text" if found.body_html is None else "body_html"
    stored = {
        **{name: "\n".join(getattr(found, name)) for name in _RECIPIENTS},
        "subject": found.subject,
        body: getattr(found, body) or "",
    }
    return {"draft": found, "body": body, "given": {**stored, **visit.form}}


async def save_and_send(visit: Visit) -> Leads:
    """Keep a draft as it was changed, or send it; the policies of its authors hold it again."""
    form, draft_id = visit.form, visit.path["draft_id"]
    changes = {name: form[name] for name in ("subject", "body_text", "body_html") if name in form}
    lines = {name: lines_of(form.get(name, "")) for name in _RECIPIENTS}
    await visit.call(update_draft, draft_id=draft_id, **lines, **changes)
    if form.get("do") == "draft":
        return Leads(f"/drafts/{draft_id}", "saved")
    sent = await visit.call(send_draft, draft_id=draft_id)
    says = "held again" if sent.status == "held" else "sent"
    return Leads(f"/outgoing/{sent.message_id}", says)


async def discard(visit: Visit) -> Leads:
    """Throw a draft away."""
    await visit.call(delete_draft, draft_id=visit.path["draft_id"])
    return Leads("/drafts", "discarded")
