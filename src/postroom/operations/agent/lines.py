"""Messages in short: what is usual is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from postroom.calls.context import RequestContext
from postroom.calls.request import Id
from postroom.model.agent import FileLine, MailLine
from postroom.model.inbox import INBOX, OUTBOX, SENT
from postroom.model.message import Message
from postroom.model.page import Slice


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Ids = Annotated[list[Id], BeforeValidator(_as_list)]
"""Ids; a single one may stand without a list."""

_MAX_ADDRESSES = 5
_MAX_NAME = 100
_USUAL_MAILBOXES = frozenset((INBOX, SENT, OUTBOX))


async def inbox_addresses(ctx: RequestContext) -> dict[str, str]:
    """The address of each inbox, if there are several; a caller with one knows it."""
    found = await ctx.store.inboxes(ctx.visible, Slice(limit=1_000))
    return {inbox.id: inbox.address for inbox in found.rows} if found.total > 1 else {}


def line_of(message: Message, addresses: Mapping[str, str], **shown: Any) -> MailLine:
    """A message in short; *shown* adds its text or a part of it."""
    is_outbound = message.direction == "outbound"
    places = [name for name in message.mailboxes if name not in _USUAL_MAILBOXES]
    files = tuple(FileLine(a.id, a.filename, a.size) for a in message.attachments if not a.inline)
    return MailLine(
        id=message.id,
        from_=sender_of(message),
        subject=message.subject,
        date=message.date,
        to=message.to_addresses[:_MAX_ADDRESSES] if is_outbound else None,
        inbox=addresses.get(message.inbox_id),
        mailbox=places[0] if places else None,
        labels=message.labels or None,
        unread=True if "seen" not in message.flags else None,
        flagged=True if "flagged" in message.flags else None,
        status=message.status,
        send_at=message.send_at,
        warnings=warnings_of(message) or None,
        attachments=files or None,
        findings=message.findings,
        **shown,
    )


def sender_of(message: Message) -> str:
    """The sender as in a header: a name and an address, or the address alone."""
    name, address = message.from_name[:_MAX_NAME], message.from_address
    return f"{name} <{address}>" if name and name != address else address


_FINDINGS = {
    "hidden_text": "it has text that a reader cannot see; that text was left out",
    "lookalike": "the sender's name or address is misleading",
    "imitates": "the sender imitates a known domain",
    "text_differs": "its plain text and its HTML say different things",
    "disguised_attachments": "an attachment is disguised as another type",
}


def warnings_of(message: Message) -> tuple[str, ...]:
    """What is suspicious about a message, in our words."""
    # The sender of outgoing mail is the caller's own inbox, also if answers go elsewhere.
    own = ("lookalike", "imitates") if message.direction == "outbound" else ()
    names = [name for name in _FINDINGS if message.security.get(name) and name not in own]
    found = [_FINDINGS[name] for name in names]
    if message.auth.get("dmarc") == "fail":
        found.append("the sender's domain says that this mail is forged (DMARC)")
    return tuple(found)
