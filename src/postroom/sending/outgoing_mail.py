"""A mail as a caller describes it, before it is composed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from postroom.calls.context import RequestContext
from postroom.errors import TooLarge
from postroom.mail.composing.compose import (
    Outgoing,
    OutgoingAttachment,
    reply_subject,
    with_signature,
)
from postroom.mail.rule_marks import rule_mark
from postroom.model.account import Identity
from postroom.model.rule import OWN_MARK
from postroom.sending.attachment_inputs import AttachmentInput

AUTOMATIC = (("Auto-Submitted", "auto-replied"),)
"""Marks an automatic reply (RFC 3834)."""

Pair = tuple[str, str]
"""A name and an address."""


@dataclass(kw_only=True, slots=True)
class OutgoingMail:
    """What a caller wants to send, whichever operation they used.

    `rule_id` is set if a rule sends it; the mail then carries a signed header.
    """

    inbox_id: str | None = None
    sender: str | None = None
    to: list[Pair]
    cc: list[Pair] = field(default_factory=list)
    bcc: list[Pair] = field(default_factory=list)
    subject: str
    text: str | None = None
    html: str | None = None
    in_reply_to: str | None = None
    thread_id: str | None = None
    attachments_in: list[AttachmentInput] = field(default_factory=list)
    is_automatic: bool = False
    is_forward: bool = False
    headers: tuple[Pair, ...] = ()
    rule_id: str | None = None
    send_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Parent:
    """The message that a reply answers, with its headers and its thread.

    `written_to` are its recipients, or its sender if it is our own mail. `senders` are the
    addresses of its authors.
    """

    internet_message_id: str | None = None
    references: tuple[str, ...] = ()
    thread_id: str | None = None
    message_id: str | None = None
    written_to: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()


def outgoing_of(
    ctx: RequestContext,
    outgoing_mail: OutgoingMail,
    sender: Identity,
    parent: Parent,
    files: tuple[OutgoingAttachment, ...],
) -> Outgoing:
    """The mail to compose: with signature, date and the headers of a reply."""
    is_reply = not outgoing_mail.is_forward and (
        parent.internet_message_id is not None or parent.thread_id is not None
    )
    message_id = f"{ctx.new_id('mail')}@{sender.email.rpartition('@')[2]}"
    text, html = with_signature(outgoing_mail.text, outgoing_mail.html, sender.signature)
    return Outgoing(
        sender=(sender.name, sender.email),
        to=tuple(outgoing_mail.to),
        cc=tuple(outgoing_mail.cc),
        bcc=tuple(outgoing_mail.bcc),
        subject=reply_subject(outgoing_mail.subject) if is_reply else outgoing_mail.subject,
        text=text,
        html=html,
        attachments=files,
        internet_message_id=message_id,
        date=(outgoing_mail.send_at or ctx.clock()).replace(microsecond=0),
        in_reply_to=parent.internet_message_id,
        references=parent.references,
        headers=(
            *(AUTOMATIC if outgoing_mail.is_automatic else ()),
            *outgoing_mail.headers,
            *_mark(ctx, outgoing_mail, message_id),
        ),
    )


def _mark(ctx: RequestContext, outgoing_mail: OutgoingMail, message_id: str) -> Iterator[Pair]:
    """The header that identifies mail of our rules."""
    if outgoing_mail.rule_id is not None:
        kind = "forward" if outgoing_mail.is_forward else "reply"
        yield OWN_MARK, rule_mark(ctx.rule_key, outgoing_mail.rule_id, kind, message_id)


def recipients_of(outgoing: Outgoing) -> list[str]:
    """All recipients of a mail, each once."""
    return each_once(address for _, address in outgoing.to + outgoing.cc + outgoing.bcc)


def each_once(addresses: Iterable[str]) -> list[str]:
    """Each address once, compared without case."""
    seen: dict[str, str] = {}
    for address in addresses:
        seen.setdefault(address.lower(), address)
    return list(seen.values())


_SEND_FEWER = "send fewer or smaller files"
_SEND_SHORTER = "send the text in parts, or as a file"


async def refuse_oversize(
    ctx: RequestContext, account_id: str, outgoing: Outgoing, raw: bytes
) -> None:
    """Refuse a mail over a limit of the provider. Raises TooLarge."""
    stored = await ctx.store.capabilities_of(account_id) or {}
    sizes = [len(file.content) for file in outgoing.attachments]
    text = len(raw) - sum(_encoded(size) for size in sizes)
    for what, size, most, instead in (
        ("message has", len(raw), stored.get("mail_bytes"), _SEND_FEWER),
        ("attachments together have", sum(sizes), stored.get("files_bytes"), _SEND_FEWER),
        ("message without its files has", text, stored.get("text_bytes"), _SEND_SHORTER),
    ):
        if most is not None and size > most:
            raise TooLarge(
                f"the {what} {size} bytes; the provider of the account {account_id} accepts at "
                f"most {most}; {instead}",
                limit=most,
            )


def _encoded(size: int) -> int:
    """The size of so many bytes in base64, with lines of 76 characters."""
    characters = -(-size // 3) * 4
    return characters + 2 * -(-characters // 76)
