"""A letter as its caller means it, what it answers, and as it goes out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from postroom.mail.compose import Outgoing, OutgoingAttachment, reply_subject
from postroom.mail.signing import signed
from postroom.model.account import Identity
from postroom.operations.context import Context
from postroom.operations.enclosures import Enclosure

AUTOMATIC = (("Auto-Submitted", "auto-replied"),)
"""How an answer that no person wrote says so (RFC 3834)."""

Pair = tuple[str, str]
"""A name and an address."""


@dataclass(kw_only=True, slots=True)
class Letter:
    """What a caller wants to send, whichever tool they used to say so."""

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
    enclosures: list[Enclosure] = field(default_factory=list)
    is_automatic: bool = False
    is_forward: bool = False
    headers: tuple[Pair, ...] = ()
    send_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Parent:
    """What a reply answers: the headers that say so, and the thread it stays in.

    `written_to` are the addresses of its recipients, one of which is ours; of our own mail, its
    sender's. `senders` are those who wrote it.
    """

    internet_message_id: str | None = None
    references: tuple[str, ...] = ()
    thread_id: str | None = None
    message_id: str | None = None
    written_to: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()


def outgoing_of(
    ctx: Context,
    letter: Letter,
    sender: Identity,
    parent: Parent,
    files: tuple[OutgoingAttachment, ...],
) -> Outgoing:
    """The mail that a letter becomes: signed and dated, with the headers of what it answers."""
    is_reply = not letter.is_forward and (
        parent.internet_message_id is not None or parent.thread_id is not None
    )
    domain = sender.email.rpartition("@")[2]
    text, html = signed(letter.text, letter.html, sender.signature)
    return Outgoing(
        sender=(sender.name, sender.email),
        to=tuple(letter.to),
        cc=tuple(letter.cc),
        bcc=tuple(letter.bcc),
        subject=reply_subject(letter.subject) if is_reply else letter.subject,
        text=text,
        html=html,
        attachments=files,
        internet_message_id=f"{ctx.new_id('mail')}@{domain}",
        date=(letter.send_at or ctx.clock()).replace(microsecond=0),
        in_reply_to=parent.internet_message_id,
        references=parent.references,
        headers=(*(AUTOMATIC if letter.is_automatic else ()), *letter.headers),
    )


def recipients_of(outgoing: Outgoing) -> list[str]:
    """Everybody who is to get a mail."""
    return each_once(address for _, address in outgoing.to + outgoing.cc + outgoing.bcc)


def each_once(addresses: Iterable[str]) -> list[str]:
    """Each address once, compared without case, as it was first written."""
    seen: dict[str, str] = {}
    for address in addresses:
        seen.setdefault(address.lower(), address)
    return list(seen.values())
