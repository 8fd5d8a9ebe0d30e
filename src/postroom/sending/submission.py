"""Submission: a mail is composed, checked and stored with its outbox entry, exactly once."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, NamedTuple, TypeVar

from pydantic import Field

from postroom.admission.spool import release
from postroom.approval import list_some
from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.request import argument
from postroom.errors import InvalidInput, MailError
from postroom.mail.compose import compose
from postroom.mail.html.html import html_to_text
from postroom.model.inbox import Inbox
from postroom.model.key import NOTICES
from postroom.model.mail.message import AddressLine, Recipient
from postroom.model.mail.sending import Sent, StoredDraft, overall_status, waits_until
from postroom.model.mail.storage import NewMessage, NewSend, ReplyLimit
from postroom.model.memory import DisclosedMemory
from postroom.model.view import EVERYTHING
from postroom.pipeline.ingest import (
    Arrival,
    ParsedMail,
    arrived_messages,
    authenticate_mails,
    build_message,
    check_size,
    parse_mails,
    restore_blobs,
    write_blobs,
)
from postroom.pipeline.routing import external_recipients, inboxes_for, route_all
from postroom.pipeline.services import Services
from postroom.sending.mail_options import MailOptions, SendAt, add_options, check_send_at
from postroom.sending.outgoing_mail import (
    OutgoingMail,
    Parent,
    collect,
    identity_of,
    inbox_and_parent,
    outgoing_of,
    recipients_of,
    refuse_oversize,
    refuse_unsendable,
)

S = TypeVar("S", bound="SendOptions")


IdempotencyKey = Annotated[
    Annotated[str, Field(min_length=1, max_length=256)] | None,
    argument("One mail per key.", "order-1042"),
]


class SendOptions(MailOptions):
    """Arguments that every send has."""

    send_at: SendAt = None

    idempotency_key: IdempotencyKey = None
    allow_duplicate: Annotated[bool, argument("Send it even if sent minutes ago.", True)] = False
    wait_s: Annotated[int, argument("Seconds to wait for the relay.", 10, ge=0, le=30)] = 0


async def send_once(
    ctx: RequestContext, request: S, write: Callable[[RequestContext, S], Awaitable[OutgoingMail]]
) -> Sent:
    """Send the mail that *write* makes of a request, exactly once; it is on disk on return.

    An earlier send with the same idempotency key or arguments is looked up first: when a call is
    repeated, the thread may have grown and the answered message may be gone.

    Raises:
        InvalidInput, TooLarge, NotFound: the mail is not valid; nothing was sent.
        Conflict: the idempotency key was used for another mail.
        RateLimited: the caller has sent too much in this hour.
    """
    payload = _payload(request)
    sent = await _earlier(ctx, request, payload)
    if sent is None:
        send_at = check_send_at(ctx, request.send_at)
        outgoing_mail = add_options(await write(ctx, request), request)
        outgoing_mail.send_at = send_at
        sent = await _send(ctx, outgoing_mail, request, payload)
    return await outcome(ctx, sent, request.wait_s) if request.wait_s else sent


async def was_sent_by(ctx: RequestContext, caller: str, request: SendOptions) -> bool:
    """Whether a request was already sent under this caller id."""
    former = request.model_copy(update={"allow_duplicate": True})
    return await _earlier(ctx, former, _payload(request), caller) is not None


async def _earlier(
    ctx: RequestContext, request: SendOptions, payload: bytes, caller: str | None = None
) -> Sent | None:
    """The earlier send of a caller with the same idempotency key or payload. Raises Conflict."""
    return await ctx.store.earlier_send(
        caller or ctx.caller.key_id,
        payload,
        idempotency_key=request.idempotency_key,
        allow_duplicate=request.allow_duplicate,
        now=ctx.clock(),
    )


async def outcome(
    ctx: RequestContext, sent: Sent, wait_s: int, waits: Callable[[Sent], bool] | None = None
) -> Sent:
    """Wait until the relay has answered for every recipient, or the time is over."""
    waits = waits or is_pending
    message_id = sent.message_id
    release()
    with ctx.watch.subscribe(
        ctx.store, lambda event: event.message_id == message_id, ctx.visible
    ) as subscription:
        newest = await ctx.store.newest_event(ctx.visible)
        events = aiter(ctx.watch.after(subscription, newest))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while waits(sent := await _current(ctx, sent)):
                    await anext(events)
    return sent


def is_pending(sent: Sent) -> bool:
    """Whether a mail waits for a person, or for the first answer of the relay."""
    return any(
        r.status == "held" or (r.status == "queued" and r.detail is None) for r in sent.recipients
    )


async def _current(ctx: RequestContext, sent: Sent) -> Sent:
    message = await ctx.store.message(sent.message_id, ctx.visible)
    recipients = (message.recipients if message else None) or sent.recipients
    return replace(
        sent,
        status=overall_status(recipients),
        recipients=recipients,
        send_at=waits_until(recipients, sent.send_at),
    )


async def sent_with_key(ctx: RequestContext, draft_id: str, key: str) -> Sent | None:
    """The earlier send of a draft with this idempotency key, even if it is a draft again.

    Raises Conflict if the key was used for another mail.
    """
    earlier = await _earlier(ctx, SendOptions(idempotency_key=key), _draft_payload(draft_id))
    return earlier and await _current(ctx, earlier)


async def send_draft_once(
    ctx: RequestContext, outgoing_mail: OutgoingMail, draft: StoredDraft, key: str | None = None
) -> Sent:
    """Send a draft, exactly once.

    Raises what `send_once` raises, and Conflict if the draft was changed meanwhile.
    """
    request = SendOptions(idempotency_key=key)
    return await _send(ctx, outgoing_mail, request, _draft_payload(draft.id), draft)


def _draft_payload(draft_id: str) -> bytes:
    return hashlib.sha256(f"draft {draft_id}".encode()).digest()


async def _send(
    ctx: RequestContext,
    outgoing_mail: OutgoingMail,
    request: SendOptions,
    payload: bytes,
    draft: StoredDraft | None = None,
) -> Sent:
    raw, inbox, parent, addresses, local = await _compose(ctx, outgoing_mail)
    (mail,) = await parse_mails(ctx, [raw])
    warnings = await warn_of_disclosure(
        ctx, f"{mail.parsed.subject}\n{mail.parsed.text}", addresses
    )
    authors = tuple(dict.fromkeys((*ctx.caller.authors, *(draft.authors if draft else ()))))
    if outgoing_mail.send_at:
        recipients, arrivals = [Recipient(address, "scheduled") for address in addresses], []
        outside = external_recipients(ctx, addresses, local)
    else:
        recipients = list((await route_all(ctx, addresses, local, inbox.account_id)).values())
        outside = [recipient.address for recipient in recipients if recipient.status == "queued"]
        inbox_ids = dict.fromkeys(i.id for i in local.values())
        arrivals = [Arrival(raw, id_, submitted_by=authors) for id_ in inbox_ids]
    (mail,) = await write_blobs(ctx, [mail])
    message = await build_sent_message(ctx, mail, inbox.id, [a for _, a in outgoing_mail.bcc])
    answered = dict.fromkeys(a.lower() for a in parent.senders if a and outgoing_mail.is_automatic)
    deliveries = await arrived_messages(ctx, arrivals, [mail] * len(arrivals))
    sent = await ctx.store.record_send(
        NewSend(
            message=replace(
                message,
                recipients=tuple(recipients),
                thread_id=parent.thread_id,
                auto_answered=tuple(answered),
            ),
            deliveries=tuple(deliveries),
            caller=ctx.caller.key_id,
            payload=payload,
            idempotency_key=request.idempotency_key,
            allow_duplicate=request.allow_duplicate,
            max_per_hour=ctx.limits.sends_per_hour if ctx.caller.is_metered else None,
            answered=None if outgoing_mail.is_forward else parent.message_id,
            send_at=outgoing_mail.send_at,
            warnings=warnings,
            draft_id=draft.id if draft else None,
            draft_revision=draft.revision if draft else 0,
            reply_limit=reply_limit(ctx, outgoing_mail),
            external_recipients=tuple(outside),
            authors=authors,
            gate=ctx.gate,
            via="" if ctx.caller == NOTICES else ctx.via,
        )
    )
    await restore_blobs(ctx, [mail])
    if sent.status == "held":
        await notify_owner(ctx, sent, inbox)
    return sent


def reply_limit(ctx: RequestContext, outgoing_mail: OutgoingMail) -> ReplyLimit | None:
    """How many automatic replies an address gets within a day; None if the mail is not automatic.

    A rule has a limit per inbox, an agent the limit of all inboxes together, which is not counted
    for an agent that sees only some inboxes.
    """
    if not outgoing_mail.is_automatic:
        return None
    per_day = ctx.limits.automatic_replies_per_day
    if outgoing_mail.rule_id is not None:
        return ReplyLimit(ctx.limits.automatic_replies_per_inbox, per_day)
    return ReplyLimit(per_day, per_day if ctx.caller.inboxes == EVERYTHING else None)


async def check_mail(ctx: RequestContext, outgoing_mail: OutgoingMail) -> Inbox:
    """Check a mail without sending it; returns its inbox. Raises what `send_once` raises."""
    return (await _compose(ctx, outgoing_mail, is_draft=True)).inbox


class _ComposedMail(NamedTuple):
    """The bytes of a mail, its recipients, and those of them whose inbox is here."""

    raw: bytes
    inbox: Inbox
    parent: Parent
    addresses: list[str]
    local: dict[str, Inbox]


async def _compose(
    ctx: RequestContext, outgoing_mail: OutgoingMail, *, is_draft: bool = False
) -> _ComposedMail:
    """Compose and check a mail; one that is too large for us or its provider is refused."""
    count = len(outgoing_mail.to) + len(outgoing_mail.cc) + len(outgoing_mail.bcc)
    if not count:
        raise InvalidInput("to: at least one recipient is required")
    if count > ctx.limits.recipients:
        raise InvalidInput(f"to: {count} recipients; the limit is {ctx.limits.recipients}")
    inbox, parent = await inbox_and_parent(ctx, outgoing_mail)
    await refuse_unsendable(ctx, inbox, is_draft=is_draft)
    sender = await identity_of(ctx, outgoing_mail, inbox, parent)
    files = await collect(ctx, outgoing_mail.attachments_in)
    if outgoing_mail.text is None and outgoing_mail.html is not None:
        outgoing_mail.text = (await in_thread(html_to_text, outgoing_mail.html)).text
    outgoing = outgoing_of(ctx, outgoing_mail, sender, parent, files)
    raw, addresses = await in_thread(compose, outgoing), recipients_of(outgoing)
    local = await inboxes_for(ctx, addresses)
    check_size(raw, ctx.limits.message_bytes)
    if inbox.account_id is not None and any(a.lower() not in local for a in addresses):
        await refuse_oversize(ctx, inbox.account_id, outgoing, raw)
    return _ComposedMail(raw, inbox, parent, addresses, local)


async def build_sent_message(
    ctx: Services, mail: ParsedMail, inbox_id: str, bcc: Sequence[str]
) -> NewMessage:
    """The sender's copy: seen, and the only message with the bcc addresses."""
    (auth,) = await authenticate_mails(ctx, [mail])
    message = build_message(ctx, mail, inbox_id, auth=auth, received_at=ctx.clock())
    hidden = tuple(AddressLine("bcc", "", address) for address in bcc)
    return replace(
        message,
        direction="outbound",
        flags=("seen",),
        addresses=message.addresses + hidden,
    )


def _payload(request: SendOptions) -> bytes:
    """A digest of the arguments, without those that control repetition."""
    content = request.model_dump_json(
        exclude={"idempotency_key", "allow_duplicate", "wait_s"}, exclude_defaults=True
    )
    return hashlib.sha256(f"{type(request).__name__}{content}".encode()).digest()


async def warn_of_disclosure(
    ctx: RequestContext, text: str, recipients: Sequence[str]
) -> tuple[str, ...]:
    """A warning for each memory whose text the mail would disclose to someone else."""
    tied = await ctx.store.tied_memories(
        text, recipients, ctx.caller.namespaces, visible=ctx.visible, now=ctx.clock()
    )
    return tuple(_sentence(memory) for memory in tied)


def _sentence(memory: DisclosedMemory) -> str:
    about, sources = list_some(memory.about), list_some(memory.sources)
    whose = f"is about {about}" if memory.about else f"comes from {sources}"
    return (
        f"this mail repeats the memory {memory.key} ({memory.namespace}), which {whose}, "
        f"to {list_some(memory.others)}; check that they may read it"
    )


log = logging.getLogger(__name__)

_EVERY_S = 600
"""One notice is enough for all mail that an inbox holds within this time."""


class HeldNotice(SendOptions):
    """Notifies the owner that mail of an inbox waits."""

    inbox_id: str


async def notify_owner(ctx: RequestContext, sent: Sent, inbox: Inbox) -> None:
    """Notify the owner that a mail is held, if the settings name an address.

    The notice contains no text of the mail. If it cannot be sent, the operation does not fail.
    """
    if ctx.gate.notify is None or sent.status != "held" or sent.deduplicated:
        return
    number = int(ctx.clock().timestamp()) // _EVERY_S
    request = HeldNotice(inbox_id=inbox.id, idempotency_key=f"{inbox.id}/{number}")
    try:
        await send_once(replace(ctx, caller=NOTICES), request, _notice)
    except MailError as error:
        log.warning("notice.failed", extra={"inbox_id": inbox.id, "error": str(error)})


async def _notice(ctx: RequestContext, request: HeldNotice) -> OutgoingMail:
    return OutgoingMail(
        inbox_id=request.inbox_id,
        to=[("", ctx.gate.notify or "")],
        subject="Mail waits for your approval",
        text=(
            "An agent has written mail that waits for your approval. Nothing is sent until you "
            f"decide.\n\nSign in to read and decide: {ctx.gate.page_url}\n"
            "On the server: postroom outbox list --status held\n"
        ),
        headers=(("Auto-Submitted", "auto-generated"),),
    )
