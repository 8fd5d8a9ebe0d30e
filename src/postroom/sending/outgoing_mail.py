"""A mail as a caller describes it, before it is composed: its sender, parent and attachments."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Self

from pydantic import ConfigDict, model_validator

from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import attachment_of, inbox_of, message_of, only_inbox, require
from postroom.calls.receipts import needs_read
from postroom.calls.request import Accepts, Constraint, Request, argument
from postroom.errors import Conflict, InvalidInput, NotFound, TooLarge, no_such
from postroom.mail.addresses import parse_address
from postroom.mail.compose import (
    ComposeInput,
    OutgoingAttachment,
    reply_references,
    reply_subject,
    with_signature,
)
from postroom.mail.senders import rule_mark
from postroom.mail.text.fold import as_key
from postroom.mail.text.invisible import cleaned
from postroom.model.account import Identity
from postroom.model.inbox import Inbox
from postroom.model.key import NOTICES
from postroom.model.limits import Limits
from postroom.model.mail.message import Message
from postroom.model.page import Slice
from postroom.model.rule import OWN_MARK
from postroom.model.view import EVERYTHING

_TEXT, _NONE = {"type": "string"}, {"type": "null"}
_CONTENT = {
    "required": ["filename", "content"],
    "properties": {"filename": _TEXT, "content": _TEXT, "attachment_id": _NONE},
}
_STORED = {
    "required": ["attachment_id"],
    "properties": {"attachment_id": _TEXT, "content": _NONE},
}


class AttachmentInput(Request):
    """A file to send: its content as base64, or the id of a stored attachment."""

    model_config = ConfigDict(title="Enclosure")  # the name in the published OpenAPI document
    constraints = (
        Constraint(
            "source", ("filename", "content", "attachment_id"), {"oneOf": [_CONTENT, _STORED]}
        ),
    )
    filename: Annotated[
        str | None,
        argument("Its name.", "report.pdf", min_length=1, max_length=255),
        Accepts({"pattern": request.LINE}),
    ] = None
    content_type: Annotated[
        str | None,
        argument("Its media type.", "application/pdf", min_length=1, max_length=127),
        Accepts(
            {"pattern": request.MEDIA_TYPE, "not": {"type": "string", "pattern": "^multipart/"}}
        ),
    ] = None
    content: Annotated[
        str | None,
        argument("Its bytes as base64.", "SGVsbG8="),
        Accepts({"pattern": request.BASE64, "contentEncoding": "base64"}),
    ] = None
    attachment_id: Annotated[
        str | None,
        argument("Instead of content: a stored attachment.", "att_6p1r4z", max_length=64),
        Accepts({"pattern": "^[A-Za-z0-9_-]+$"}),
    ] = None

    @model_validator(mode="after")
    def _content_or_id(self) -> Self:
        if (self.content is None) == (self.attachment_id is None):
            raise ValueError("give either content (base64) or attachment_id")
        if self.content is not None and self.filename is None:
            raise ValueError("filename is required with content")
        return self


AttachmentInputs = Annotated[
    list[AttachmentInput],
    argument(
        "Files: content in base64, or attachment_id of one.",
        [{"filename": "a.txt", "content": "SGk="}, {"attachment_id": "att_6p1r4z"}],
    ),
    Accepts({"maxItems": Limits().attachments_count}),
]


async def collect(
    ctx: RequestContext, attachments_in: list[AttachmentInput]
) -> tuple[OutgoingAttachment, ...]:
    """Decode and fetch all files.

    Raises:
        InvalidInput: there are too many, a name is too long, or one is not base64.
        TooLarge: together they are over the limit.
        NotFound: an attachment id is unknown.
    """
    if len(attachments_in) > ctx.limits.attachments_count:
        raise InvalidInput(
            f"attachments: {len(attachments_in)} files; the limit is {ctx.limits.attachments_count}"
        )
    files = [await _file(ctx, file, number) for number, file in enumerate(attachments_in)]
    total = sum(len(file.content) for file in files)
    if total > ctx.limits.attachments_bytes:
        raise TooLarge(
            f"the attachments have {total} bytes in total; "
            f"the limit is {ctx.limits.attachments_bytes}; send smaller or fewer files"
        )
    return tuple(files)


def check_files(ctx: RequestContext, files: Iterable[AttachmentInput] | None) -> None:
    """Refuse stored files to a caller who may not read them. Raises Forbidden."""
    if any(file.attachment_id is not None for file in files or ()):
        needs_read(ctx, "attachment_id sends a stored file to others")


async def _file(ctx: RequestContext, file: AttachmentInput, number: int) -> OutgoingAttachment:
    """A file to send: its media type without parameters, its bytes unchanged."""
    if len(file.filename or "") > ctx.limits.filename_chars:
        raise InvalidInput(
            f"attachments[{number}].filename: {len(file.filename or '')} characters; "
            f"the limit is {ctx.limits.filename_chars}"
        )
    media_type = (file.content_type or "").partition(";")[0].strip()
    if file.content is not None:
        name = file.filename or ""
        content = decode_strictly(file.content, f"attachments[{number}] ({name})")
        return OutgoingAttachment(name, media_type or "application/octet-stream", content)
    held = await attachment_of(ctx, file.attachment_id or "")
    return OutgoingAttachment(
        file.filename or held.filename or "attachment",
        media_type or held.content_type,
        await ctx.blobs.read(held.sha256),
    )


def decode_strictly(text: str, where: str) -> bytes:
    """Decode strict base64: padded, without stray bits. Raises InvalidInput."""
    try:
        content = b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidInput(f"{where}: the content is not valid base64 ({error})") from None
    if b64encode(content).decode() != text:
        raise InvalidInput(f"{where}: the content is not valid base64 (stray bits at its end)")
    return content


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
    reply_to: list[Pair] = field(default_factory=list)
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
) -> ComposeInput:
    """The mail to compose: with signature, date and the headers of a reply."""
    if ctx.caller == NOTICES:  # an agent can change the name and the signature of an inbox
        sender = replace(sender, name="Postroom", signature="")
    is_reply = not outgoing_mail.is_forward and (
        parent.internet_message_id is not None or parent.thread_id is not None
    )
    message_id = f"{ctx.new_id('mail')}@{sender.email.rpartition('@')[2]}"
    text, html = with_signature(outgoing_mail.text, outgoing_mail.html, sender.signature)
    headers = [*(AUTOMATIC if outgoing_mail.is_automatic else ()), *outgoing_mail.headers]
    if outgoing_mail.rule_id is not None:
        kind = "forward" if outgoing_mail.is_forward else "reply"
        headers.append((OWN_MARK, rule_mark(ctx.rule_key, kind, message_id)))
    return ComposeInput(
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
        reply_to=tuple(outgoing_mail.reply_to),
        headers=tuple(headers),
    )


def recipients_of(outgoing: ComposeInput) -> list[str]:
    """All recipients of a mail, each once."""
    return distinct_addresses(address for _, address in outgoing.to + outgoing.cc + outgoing.bcc)


def distinct_addresses(addresses: Iterable[str]) -> list[str]:
    """Each address once, compared without case."""
    seen: dict[str, str] = {}
    for address in addresses:
        seen.setdefault(address.lower(), address)
    return list(seen.values())


_SEND_FEWER = "send fewer or smaller files"
_SEND_SHORTER = "send the text in parts, or as a file"


async def refuse_oversize(
    ctx: RequestContext, account_id: str, outgoing: ComposeInput, raw: bytes
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


_MAX_IDENTITIES = 1_000
_ADDRESS = re.compile(r"[^\s@<>\"'(),;:]+@[^\s@<>\"'(),;:]+")


async def inbox_and_parent(
    ctx: RequestContext, outgoing_mail: OutgoingMail
) -> tuple[Inbox, Parent]:
    """The inbox that sends, and the message that the mail answers."""
    if outgoing_mail.in_reply_to and outgoing_mail.in_reply_to.startswith("msg_"):
        answered = await message_of(ctx, outgoing_mail.in_reply_to)
        inbox = await sending_inbox(ctx, outgoing_mail, answered.inbox_id)
        if inbox.id != answered.inbox_id:
            raise NotFound(
                f"no message {outgoing_mail.in_reply_to} in the inbox {inbox.id}; "
                "send the reply from the inbox that has the message"
            )
        return inbox, _parent_of(answered)
    inbox = await sending_inbox(ctx, outgoing_mail, None)
    if outgoing_mail.thread_id:
        newest = await ctx.store.newest_message(outgoing_mail.thread_id, ctx.visible)
        if newest is None or newest.inbox_id != inbox.id:
            raise NotFound(f"no thread {outgoing_mail.thread_id} in the inbox {inbox.id}")
        return inbox, _parent_of(newest)
    if outgoing_mail.in_reply_to:
        return inbox, await _parent_by_internet_id(ctx, outgoing_mail.in_reply_to, inbox)
    return inbox, Parent()


async def sending_inbox(
    ctx: RequestContext, outgoing_mail: OutgoingMail, default: str | None = None
) -> Inbox:
    """The inbox that a mail is sent from: of `from`, the named one, the default or the only one."""
    if outgoing_mail.sender:
        _, address = parse_address(outgoing_mail.sender, field="from")
        inbox = (await ctx.store.inboxes_at([address])).get(address.lower())
        if inbox is None or not ctx.visible.sees(inbox.id):
            raise NotFound(
                f"from: you have no inbox with the address {address}; list_inboxes shows yours"
            )
        if outgoing_mail.inbox_id not in (None, inbox.id):
            raise Conflict(f"from: {inbox.address} is not the address of {outgoing_mail.inbox_id}")
        return inbox
    if outgoing_mail.inbox_id or default:
        return await inbox_of(ctx, outgoing_mail.inbox_id or default or "")
    return await only_inbox(ctx)


def _parent_of(message: Message) -> Parent:
    """The parent of a reply; a Message-ID that no header can carry is left out."""
    references = reply_references(message)
    own = message.internet_message_id
    recipients = (*message.to_addresses, *message.cc_addresses, *message.bcc_addresses)
    return Parent(
        own if own in references else None,
        references,
        message.thread_id,
        message.id,
        (message.from_address,) if message.direction == "outbound" else recipients,
        (message.from_address, *message.reply_to_addresses),
    )


async def _parent_by_internet_id(ctx: RequestContext, in_reply_to: str, inbox: Inbox) -> Parent:
    """The parent by its Message-ID, stored here or not."""
    internet_id = in_reply_to.strip().removeprefix("<").removesuffix(">")
    if not internet_id or any(c.isspace() or c in "<>" for c in internet_id):
        raise InvalidInput("in_reply_to: give the id of a message (msg_…) or its Message-ID")
    held = await ctx.store.message_by_internet_id(inbox.id, as_key(internet_id))
    return _parent_of(held) if held else Parent(internet_id, (internet_id,))


async def identity_of(
    ctx: RequestContext, outgoing_mail: OutgoingMail, inbox: Inbox, parent: Parent
) -> Identity:
    """The sender: the address in `from`, the one the parent was sent to, or the inbox's default.

    Raises InvalidInput if `from` has a display name that cannot be used.
    """
    found, name = None, ""
    if outgoing_mail.sender:
        name, address = parse_address(outgoing_mail.sender, field="from")
        found = await ctx.store.identity_at(address)
    elif parent.written_to:
        own = {identity.email: identity for identity in await own_identities(ctx, inbox.id)}
        found = next((own[a.lower()] for a in parent.written_to if a.lower() in own), None)
    found = found or await ctx.store.default_identity(inbox.id)
    if found is None:
        raise NotFound(no_such("inbox", inbox.id))
    return replace(found, name=_display_name(name, found)) if name else found


def _display_name(name: str, identity: Identity) -> str:
    """Any name for an own address, unless it passes for another address. Raises InvalidInput."""
    others = [a for a in _ADDRESS.findall(name) if a.lower() != identity.email]
    if others or cleaned(name, one_line=True) != name:
        wrong = "another address" if others else "invisible characters"
        raise InvalidInput(f"from: the name contains {wrong}; use a plain name", field="from")
    return name


async def own_identities(ctx: RequestContext, inbox_id: str) -> tuple[Identity, ...]:
    """The addresses that an inbox may send from."""
    found = await ctx.store.identities(ctx.visible, inbox_id, Slice(limit=_MAX_IDENTITIES))
    return tuple(found.rows)


async def refuse_unsendable(ctx: RequestContext, inbox: Inbox, *, is_draft: bool) -> None:
    """Refuse mail from an account that cannot send, or was not added for it. Raises Conflict."""
    account_id = inbox.account_id
    if account_id is None:
        return
    account = await ctx.store.account(account_id, EVERYTHING)
    options = require(account, no_such("account", account_id)).options
    scopes = options.get("scopes", ("read", "draft", "send"))
    needed = ("draft", "send") if is_draft else ("send",)
    if not set(scopes) & set(needed):
        raise Conflict(
            f"the account {account_id} was added for {', '.join(scopes)} only; to {needed[0]} "
            f"with it, remove it and add it with --scope {needed[0]}"
        )
    stored = await ctx.store.capabilities_of(account_id)
    if "send" in scopes and stored is not None and not stored["can_send"]:
        raise Conflict(
            f"the account {account_id} cannot send: it was added without an SMTP server, or "
            "its provider does not accept mail"
        )
