"""Cancelled mail: the draft that an outgoing mail becomes again."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.mail.addresses import written_address
from postroom.mail.composing.compose import Correspondent, OutgoingAttachment, reply_subject
from postroom.mail.composing.read_back import Composition, read_back
from postroom.model.message import Message
from postroom.model.sending import EarlierMail, StoredDraft


async def draft_of(ctx: RequestContext, message: Message) -> StoredDraft:
    """A draft with the content of an outgoing message; it is not stored yet."""
    identity = await ctx.store.identity_at(message.from_address)
    raw = await ctx.blobs.read(message.raw)
    content = await in_thread(read_back, raw, identity.signature if identity else "")
    is_own_name = identity is not None and (identity.name, identity.email) == content.sender
    arguments = {
        **({} if is_own_name else {"from": written_address(*content.sender)}),
        "inbox_id": message.inbox_id,
        "to": _written(content.to),
        "cc": _written(content.cc),
        "bcc": list(message.bcc_addresses),
        "subject": content.subject,
        "body_text": content.text,
        "body_html": content.html,
        "in_reply_to": _answered(message, content),
        "attachments": [_attachment(file) for file in content.attachments],
        "reply_to": _written(content.reply_to),
        "headers": [{"name": name, "value": value} for name, value in content.headers],
    }
    kept = {name: value for name, value in arguments.items() if value not in (None, [])}
    now = ctx.clock().replace(microsecond=0)
    return StoredDraft(
        ctx.new_id("drf"),
        message.inbox_id,
        {"to": [], **kept},
        message.send_at,
        now,
        now,
        replaces=earlier_mail(message),
    )


_MAX_CHARS = 100_000


def earlier_mail(message: Message) -> EarlierMail:
    """What is kept of a mail, to compare it with the one that is written instead."""
    return EarlierMail(
        message_id=message.id,
        recipients=tuple(recipient.address for recipient in message.recipients or ()),
        subject=message.subject,
        text=message.text[:_MAX_CHARS],
        files=tuple(file.filename for file in message.attachments),
        note=message.hold.note if message.hold else None,
    )


def _written(people: tuple[Correspondent, ...]) -> list[str]:
    return [written_address(name, address) for name, address in people]


def _answered(message: Message, content: Composition) -> str | None:
    """The Message-ID that the mail answers; a forward names one too, but is no reply."""
    is_reply = content.subject == reply_subject(content.subject)
    return message.in_reply_to if is_reply else None


def _attachment(file: OutgoingAttachment) -> dict[str, Any]:
    return {
        "filename": file.filename,
        "content_type": file.content_type,
        "content": b64encode(file.content).decode(),
    }
