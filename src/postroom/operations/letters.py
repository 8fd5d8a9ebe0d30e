"""A letter on its way: who sends it, what it answers, its bytes, and one transaction."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, TypeVar

from pydantic import Field

from postroom.blocking import in_thread
from postroom.errors import Conflict, InvalidInput, NotFound, no_such
from postroom.mail.compose import (
    Outgoing,
    OutgoingAttachment,
    compose,
    parse_address,
    reply_references,
    reply_subject,
)
from postroom.mail.keying import as_key
from postroom.mail.signing import signed
from postroom.model.account import Identity
from postroom.model.draft import StoredDraft
from postroom.model.event import Event
from postroom.model.inbox import SENT, Inbox
from postroom.model.message import Message, Recipient
from postroom.model.page import Slice
from postroom.model.sending import Sent, overall_status
from postroom.model.stored import NewMessage, NewSend
from postroom.operations.confidences import warn_of_confidences
from postroom.operations.context import Context
from postroom.operations.enclosures import Enclosure, collect
from postroom.operations.inboxes import inbox_of
from postroom.operations.messages import message_of
from postroom.operations.oversize import refuse_oversize
from postroom.operations.request import Request
from postroom.pipeline.addressing import inboxes_for
from postroom.pipeline.outbox import route_all
from postroom.pipeline.receive import Arrival, as_sent, check_size, put_away

AUTOMATIC = (("Auto-Submitted", "auto-replied"),)
"""How an answer that no person wrote says so (RFC 3834)."""

S = TypeVar("S", bound="Sending")
Pair = tuple[str, str]
"""A name and an address."""

_LONGEST_NAME = 200
_MOST_IDENTITIES = 1_000


class Sending(Request):
    """What every send takes beside the mail itself."""

    idempotency_key: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=256,
            description="Your key for this send: repeated, the mail goes out once.",
            examples=["order-1042"],
        ),
    ] = None
    allow_duplicate: Annotated[
        bool,
        Field(
            description="Send again what was sent minutes ago.",
            examples=[True],
        ),
    ] = False
    wait_s: Annotated[
        int,
        Field(ge=0, le=30, description="Wait so long for the relay's answer.", examples=[10]),
    ] = 0


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


async def send_once(
    ctx: Context, request: S, write: Callable[[Context, S], Awaitable[Letter]]
) -> Sent:
    """Send what *write* makes of a request, exactly once; when this returns, it is on disk.

    What makes two calls the same is what the caller said, and it is looked up before anything
    else: by the time of a retry the thread has grown, and the answered mail may be gone.
    With `wait_s` it returns as soon as the outcome is known, but no later.

    Raises:
        InvalidInput, TooLarge, NotFound: something in the letter is wrong; nothing was sent.
        Conflict: its idempotency key was used for another letter.
        RateLimited: the caller has sent its share of this hour.
    """
    payload = _payload(request)
    earlier = await ctx.store.earlier_send(
        ctx.caller.key_id,
        payload,
        idempotency_key=request.idempotency_key,
        allow_duplicate=request.allow_duplicate,
        now=ctx.clock(),
    )
    sent = earlier or await _send(ctx, await write(ctx, request), request, payload)
    return await _outcome(ctx, sent, request.wait_s) if request.wait_s else sent


async def _outcome(ctx: Context, sent: Sent, wait_s: int) -> Sent:
    """Wait until nobody is queued any more, or the time is over."""

    def is_about_it(event: Event) -> bool:
        return event.message_id == sent.message_id

    with ctx.watch.subscribe(ctx.store, is_about_it) as subscription:
        events = aiter(ctx.watch.after(subscription, await ctx.store.newest_event()))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while _is_waiting(sent := await _current(ctx, sent)):
                    await anext(events)
    return sent


def _is_waiting(sent: Sent) -> bool:
    return any(recipient.status == "queued" for recipient in sent.recipients)


async def _current(ctx: Context, sent: Sent) -> Sent:
    message = await ctx.store.message(sent.message_id, ctx.visible)
    recipients = (message.recipients if message else None) or sent.recipients
    return replace(sent, status=overall_status(recipients), recipients=recipients)


async def send_draft_once(ctx: Context, letter: Letter, draft: StoredDraft) -> Sent:
    """Send what a draft says; whoever has sent it before, there is one mail.

    Raises what `send_once` raises for a letter that is wrong, and Conflict when it was changed.
    """
    payload = hashlib.sha256(f"draft {draft.id}".encode()).digest()
    return await _send(ctx, letter, Sending(), payload, draft)


async def _send(
    ctx: Context,
    letter: Letter,
    request: Sending,
    payload: bytes,
    draft: StoredDraft | None = None,
) -> Sent:
    _check_recipients(ctx, letter)
    inbox, parent = await _origin(ctx, letter)
    await _refuse_mute(ctx, inbox)
    sender = await _identity(ctx, letter, inbox, parent)
    outgoing = _outgoing(ctx, letter, sender, parent, await collect(ctx, letter.enclosures))
    raw = await in_thread(compose, outgoing)
    local = await inboxes_for(ctx, _recipients(outgoing))
    await _check_size(ctx, inbox, outgoing, raw, local)
    (parsed,) = await ctx.parser.parse([raw])
    warnings = await warn_of_confidences(
        ctx, f"{parsed.subject}\n{parsed.text}", _recipients(outgoing)
    )
    recipients = tuple(
        [Recipient(address, "scheduled") for address in _recipients(outgoing)]
        if letter.send_at
        else (await route_all(ctx, _recipients(outgoing), local, inbox.account_id)).values()
    )
    now_local = () if letter.send_at else dict.fromkeys(i.id for i in local.values())
    own = Arrival(raw, inbox.id, SENT, "outbound")
    arrivals = [own, *(Arrival(raw, inbox_id) for inbox_id in now_local)]
    async with put_away(ctx, [(arrival, parsed) for arrival in arrivals]) as copies:
        return await ctx.store.record_send(
            NewSend(
                message=_sent_copy(copies[0], letter, outgoing, parent, recipients),
                deliveries=tuple(copies[1:]),
                caller=ctx.caller.key_id,
                payload=payload,
                idempotency_key=request.idempotency_key,
                allow_duplicate=request.allow_duplicate,
                most_per_hour=ctx.limits.sends_per_hour if ctx.caller.is_metered else None,
                answered=None if letter.is_forward else parent.message_id,
                send_at=letter.send_at,
                warnings=warnings,
                draft_id=draft.id if draft else None,
                draft_revision=draft.revision if draft else 0,
            )
        )


async def check_letter(ctx: Context, letter: Letter) -> Inbox:
    """Refuse what could not be sent, without sending it; the inbox that would send.

    Raises what `send_once` raises for a letter that is wrong.
    """
    _check_recipients(ctx, letter)
    inbox, parent = await _origin(ctx, letter)
    await _refuse_undraftable(ctx, inbox)
    sender = await _identity(ctx, letter, inbox, parent)
    outgoing = _outgoing(ctx, letter, sender, parent, await collect(ctx, letter.enclosures))
    raw = await in_thread(compose, outgoing)
    await _check_size(ctx, inbox, outgoing, raw, await inboxes_for(ctx, _recipients(outgoing)))
    return inbox


async def _check_size(
    ctx: Context, inbox: Inbox, outgoing: Outgoing, raw: bytes, local: Collection[str]
) -> None:
    """Refuse what is too large for us, or for the provider if anybody gets it from there."""
    check_size(raw, ctx.limits.message_bytes)
    leaves = any(address.lower() not in local for address in _recipients(outgoing))
    if inbox.account_id is not None and leaves:
        await refuse_oversize(ctx, inbox.account_id, outgoing, raw)


def _check_recipients(ctx: Context, letter: Letter) -> None:
    count = len(letter.to) + len(letter.cc) + len(letter.bcc)
    if not count:
        raise InvalidInput("to: at least one recipient is required")
    if count > ctx.limits.recipients:
        raise InvalidInput(f"to: {count} recipients; the limit is {ctx.limits.recipients}")


async def _origin(ctx: Context, letter: Letter) -> tuple[Inbox, Parent]:
    """Decide which inbox sends, and what the letter answers."""
    if letter.in_reply_to and letter.in_reply_to.startswith("msg_"):
        answered = await message_of(ctx, letter.in_reply_to)
        inbox = await _sender(ctx, letter, answered.inbox_id)
        if inbox.id != answered.inbox_id:
            raise NotFound(f"no message {letter.in_reply_to} in the inbox {inbox.id}")
        return inbox, _answering(answered)
    inbox = await _sender(ctx, letter, None)
    if letter.thread_id:
        return inbox, await _thread_parent(ctx, letter.thread_id, inbox)
    if letter.in_reply_to:
        return inbox, await _foreign_parent(ctx, letter.in_reply_to, inbox)
    return inbox, Parent()


async def _sender(ctx: Context, letter: Letter, default: str | None) -> Inbox:
    if letter.sender:
        inbox = await _inbox_at(ctx, letter.sender)
        if letter.inbox_id not in (None, inbox.id):
            raise Conflict(f"from: {inbox.address} is not the address of {letter.inbox_id}")
        return inbox
    if letter.inbox_id or default:
        return await inbox_of(ctx, letter.inbox_id or default or "")
    found = await ctx.store.inboxes(ctx.visible, Slice(limit=20))
    if found.total == 1:
        return found.rows[0]
    if not found.total:
        raise Conflict("there is no inbox to send from; create_inbox makes one")
    names = ", ".join(f"{inbox.id} ({inbox.address})" for inbox in found.rows)
    raise Conflict(f"inbox_id: there are several inboxes; name one of {names}")


async def _inbox_at(ctx: Context, sender: str) -> Inbox:
    _, address = parse_address(sender)
    inbox = (await ctx.store.inboxes_at([address])).get(address.lower())
    if inbox is None or (ctx.visible is not None and inbox.id not in ctx.visible):
        raise NotFound(f"from: you have no inbox with the address {address}")
    return inbox


def _answering(message: Message) -> Parent:
    """What to say of the mail that is answered; an id that no header can carry is left out."""
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


async def _thread_parent(ctx: Context, thread_id: str, inbox: Inbox) -> Parent:
    newest = await ctx.store.newest_message(thread_id, ctx.visible)
    if newest is None or newest.inbox_id != inbox.id:
        raise NotFound(f"no thread {thread_id} in the inbox {inbox.id}")
    return _answering(newest)


async def _foreign_parent(ctx: Context, in_reply_to: str, inbox: Inbox) -> Parent:
    """A Message-ID: a mail we hold, or one we have never seen."""
    internet_id = in_reply_to.strip().removeprefix("<").removesuffix(">")
    if not internet_id or any(c.isspace() or c in "<>" for c in internet_id):
        raise InvalidInput("in_reply_to: give the id of a message (msg_…) or its Message-ID")
    held = await ctx.store.message_by_internet_id(inbox.id, as_key(internet_id))
    return _answering(held) if held else Parent(internet_id, (internet_id,))


async def _refuse_mute(ctx: Context, inbox: Inbox) -> None:
    """Refuse to send from an account that cannot, before anything is written."""
    if inbox.account_id is None:
        return
    _refuse_beyond(await _scopes(ctx, inbox.account_id), ("send",), inbox.account_id)
    stored = await ctx.store.capabilities_of(inbox.account_id)
    if stored is not None and not stored["can_send"]:
        raise Conflict(
            f"the account {inbox.account_id} cannot send: it was added without an SMTP server, or "
            "its provider takes no mail"
        )


async def _refuse_undraftable(ctx: Context, inbox: Inbox) -> None:
    """Refuse to write drafts for an account that is only to be read, or that could send none."""
    if inbox.account_id is None:
        return
    scopes = await _scopes(ctx, inbox.account_id)
    _refuse_beyond(scopes, ("draft", "send"), inbox.account_id)
    if "send" in scopes:
        await _refuse_mute(ctx, inbox)


async def _scopes(ctx: Context, account_id: str) -> tuple[str, ...]:
    """What an account was signed in for."""
    account = await ctx.store.account(account_id, None)
    if account is None:
        raise NotFound(no_such("account", account_id))
    return tuple(account.options.get("scopes", ("read", "draft", "send")))


def _refuse_beyond(scopes: tuple[str, ...], wanted: tuple[str, ...], account_id: str) -> None:
    if not set(scopes) & set(wanted):
        raise Conflict(
            f"the account {account_id} was added for {', '.join(scopes)} only; to {wanted[0]} "
            f"with it, remove it and add it with --scope {wanted[0]}"
        )


async def _identity(ctx: Context, letter: Letter, inbox: Inbox, parent: Parent) -> Identity:
    """Whom the letter is from: the address that was named, the one that it answers for, or the
    default of the inbox.
    """
    found = None
    if letter.sender:
        found = await ctx.store.identity_at(parse_address(letter.sender)[1])
    elif parent.written_to:
        own = {identity.email: identity for identity in await _identities(ctx, inbox.id)}
        found = next((own[a.lower()] for a in parent.written_to if a.lower() in own), None)
    found = found or await ctx.store.default_identity(inbox.id)
    if found is None:
        raise NotFound(no_such("inbox", inbox.id))
    return found


async def _identities(ctx: Context, inbox_id: str) -> tuple[Identity, ...]:
    found = await ctx.store.identities(ctx.visible, inbox_id, Slice(limit=_MOST_IDENTITIES))
    return tuple(found.rows)


def _outgoing(
    ctx: Context,
    letter: Letter,
    sender: Identity,
    parent: Parent,
    files: tuple[OutgoingAttachment, ...],
) -> Outgoing:
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


def _recipients(outgoing: Outgoing) -> list[str]:
    return _unique(address for _, address in outgoing.to + outgoing.cc + outgoing.bcc)


def _sent_copy(
    copy: NewMessage,
    letter: Letter,
    outgoing: Outgoing,
    parent: Parent,
    recipients: tuple[Recipient, ...],
) -> NewMessage:
    """The sender's own message, which knows what became of each recipient."""
    sent = as_sent(copy, [address for _, address in outgoing.bcc])
    answered = dict.fromkeys(a.lower() for a in parent.senders if a and letter.is_automatic)
    return replace(
        sent,
        recipients=recipients,
        thread_id=parent.thread_id,
        auto_answered=tuple(answered),
    )


def _unique(addresses: Iterable[str]) -> list[str]:
    """Each address once, compared without case, as it was first written."""
    seen: dict[str, str] = {}
    for address in addresses:
        seen.setdefault(address.lower(), address)
    return list(seen.values())


def _payload(request: Sending) -> bytes:
    """What makes two sends the same: all that the caller said but how to repeat it."""
    said = request.model_dump_json(
        exclude={"idempotency_key", "allow_duplicate", "wait_s"}, exclude_defaults=True
    )
    return hashlib.sha256(f"{type(request).__name__}{said}".encode()).digest()


async def reply_recipients(
    ctx: Context, parent: Message, *, reply_all: bool
) -> tuple[list[Pair], list[Pair]]:
    """Who gets the answer: the sender, or whom we wrote to if the message was ours.

    None of our own addresses does, unless nobody else is left.
    """
    names = {a.address.lower(): a.name for a in parent.addresses}
    own = {identity.email for identity in await _identities(ctx, parent.inbox_id)}
    if parent.direction == "outbound":
        to = list(parent.to_addresses)
    else:
        to = list(parent.reply_to_addresses) or [parent.from_address]
    cc = [*parent.to_addresses, *parent.cc_addresses] if reply_all else []
    main = _unique([a for a in to if a and a.lower() not in own] or [a for a in to if a])
    others = [a for a in _unique(cc) if a.lower() not in own.union(m.lower() for m in main)]
    if not main:
        raise Conflict(f"{parent.id} has no sender to reply to; use send_message")
    return (
        [(names.get(a.lower(), "")[:_LONGEST_NAME], a) for a in main],
        [(names.get(a.lower(), "")[:_LONGEST_NAME], a) for a in others],
    )


def forward_letter(original: Message, text: str, to: list[Pair]) -> Letter:
    """A letter that carries a message on: its text below ours, its files attached."""
    lines = [
        "---------- Forwarded message ----------",
        f"From: {original.from_name} <{original.from_address}>".replace("  ", " "),
        f"Date: {original.date:%a, %d %b %Y %H:%M:%S} +0000",
        f"Subject: {original.subject}",
        f"To: {', '.join(original.to_addresses)}",
        "",
        original.text,
    ]
    subject = original.subject
    return Letter(
        inbox_id=original.inbox_id,
        to=to,
        subject=subject if subject.lower().startswith("fwd:") else f"Fwd: {subject}",
        text="\n".join(([text, ""] if text else []) + lines),
        in_reply_to=original.id,
        is_forward=True,
        enclosures=[Enclosure(attachment_id=a.id) for a in original.attachments if not a.inline],
    )
