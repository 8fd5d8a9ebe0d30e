"""Replies and forwards: their recipients, subject and quotation; protection against mail loops."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from postroom.calls.context import RequestContext
from postroom.errors import Conflict
from postroom.model.message import Message
from postroom.model.storage import ReplyLimit
from postroom.model.view import EVERYTHING
from postroom.sending.outgoing_mail import (
    AttachmentInput,
    OutgoingMail,
    Pair,
    each_once,
    own_identities,
)

_LONGEST_NAME = 200


async def reply_recipients(
    ctx: RequestContext, parent: Message, *, reply_all: bool
) -> tuple[list[Pair], list[Pair]]:
    """The recipients of a reply: the sender, or the recipients if the message is our own.

    Our own addresses are left out, unless there are no others.
    """
    names = {a.address.lower(): a.name for a in parent.addresses}
    own = {identity.email for identity in await own_identities(ctx, parent.inbox_id)}
    if parent.direction == "outbound":
        to = list(parent.to_addresses)
    else:
        to = list(parent.reply_to_addresses) or [parent.from_address]
    cc = [*parent.to_addresses, *parent.cc_addresses] if reply_all else []
    main = each_once([a for a in to if a and a.lower() not in own] or [a for a in to if a])
    others = [a for a in each_once(cc) if a.lower() not in own.union(m.lower() for m in main)]
    if not main:
        raise Conflict(f"{parent.id} has no sender to reply to; use send_message")
    return (
        [(names.get(a.lower(), "")[:_LONGEST_NAME], a) for a in main],
        [(names.get(a.lower(), "")[:_LONGEST_NAME], a) for a in others],
    )


def forward_mail_of(original: Message, text: str, to: list[Pair]) -> OutgoingMail:
    """A forward: the original text below ours, with its attachments."""
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
    return OutgoingMail(
        inbox_id=original.inbox_id,
        to=to,
        subject=subject if subject.lower().startswith("fwd:") else f"Fwd: {subject}",
        text="\n".join(([text, ""] if text else []) + lines),
        in_reply_to=original.id,
        is_forward=True,
        attachments_in=[
            AttachmentInput(attachment_id=a.id) for a in original.attachments if not a.inline
        ],
    )


_DAY = timedelta(hours=24)
_MAX_OWN_LOOPS = 3
"""How often a day a rule forwards automatic mail in one thread that refers to our own mail: it may
be a mail loop."""
_MAX_AUTOMATIC = 100
"""How often a day a rule forwards other automatic mail in one thread."""
_MAX_REFERENCES = 20


async def refuse_loop(ctx: RequestContext, parent: Message) -> None:
    """Refuse an automatic reply to automatic mail, or a second one in a day. Raises Conflict.

    See RFC 3834. Of two replies at the same time, the store refuses the second.
    """
    (parsed,) = await ctx.parser.parse([await ctx.blobs.read(parent.raw)])
    if parsed.auto_submitted or parsed.report is not None or await _is_own_mail(ctx, parent):
        raise Conflict(
            f"{parent.id} was sent automatically; an automatic reply could start a mail loop"
        )
    answered = (parent.from_address, *parent.reply_to_addresses)
    await ctx.store.refuse_second_answer(parent.thread_id, answered, ctx.clock())


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


async def refuse_many_replies(
    ctx: RequestContext, outgoing_mail: OutgoingMail, inbox_id: str
) -> None:
    """Refuse more automatic replies to an address than a day allows. Raises Conflict."""
    limit = reply_limit(ctx, outgoing_mail)
    if limit is not None:
        addresses = [address for _, address in outgoing_mail.to]
        await ctx.store.refuse_many_replies(inbox_id, addresses, limit, ctx.clock())


async def refuse_forward_loop(ctx: RequestContext, original: Message) -> None:
    """Refuse to forward automatic mail too often in one thread. Raises Conflict.

    Two installations that forward to each other send a new mail each time; it is marked as
    automatic and refers to the one before, which is how the loop is detected.
    """
    (parsed,) = await ctx.parser.parse([await ctx.blobs.read(original.raw)])
    if not parsed.auto_submitted:
        return
    since = ctx.clock() - _DAY
    sent = await ctx.store.forwards_since(ctx.caller.key_id, original.thread_id, since)
    references = (original.in_reply_to, *reversed(original.references))
    maximum = (
        _MAX_OWN_LOOPS if await _answers_own_mail(ctx, original, references) else _MAX_AUTOMATIC
    )
    if sent >= maximum:
        raise Conflict(
            f"{original.id} was sent automatically, and {sent} such mails were forwarded in its "
            "thread within a day; this looks like a mail loop"
        )


async def _answers_own_mail(
    ctx: RequestContext, message: Message, references: Iterable[str | None]
) -> bool:
    ids = dict.fromkeys(message_id for message_id in references if message_id)
    for message_id in list(ids)[:_MAX_REFERENCES]:
        if await ctx.store.is_own_mail(message.inbox_id, message_id):
            return True
    return False


async def _is_own_mail(ctx: RequestContext, message: Message) -> bool:
    """Whether a message was sent from this inbox, or came back to it."""
    if message.direction == "outbound":
        return True
    own = message.internet_message_id
    return own is not None and await ctx.store.is_own_mail(message.inbox_id, own)
