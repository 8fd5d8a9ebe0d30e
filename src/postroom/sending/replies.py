"""Replies and forwards, of callers and of rules; loop protection; cancelled mail as a draft."""

from __future__ import annotations

import logging
from base64 import b64encode
from dataclasses import replace
from datetime import timedelta
from html import escape
from typing import Annotated, Any

from pydantic import Field

from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import MessageId, message_of
from postroom.errors import Conflict, Forbidden
from postroom.mail.addresses import format_address
from postroom.mail.compose import Correspondent, OutgoingAttachment, reply_subject
from postroom.mail.html.html import sanitise_html
from postroom.mail.verification import read_back
from postroom.model.event import AuditRecord
from postroom.model.key import Caller
from postroom.model.mail.message import Message
from postroom.model.mail.sending import EarlierMail, StoredDraft
from postroom.model.rule import RuleJob
from postroom.model.view import NOTHING, only
from postroom.pipeline.apply_rules import caller_for_rule_job
from postroom.rules.definition import refusal, with_advice
from postroom.sending.outgoing_mail import (
    AttachmentInput,
    OutgoingMail,
    Pair,
    each_once,
    own_identities,
)
from postroom.sending.submission import SendOptions, reply_limit, send_once, was_sent_by

_LONGEST_NAME = 200


async def reply_mail_of(
    ctx: RequestContext, parent: Message, text: str, *, reply_all: bool = False
) -> OutgoingMail:
    """A reply: to the sender, or to the recipients if the message is our own.

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
    return OutgoingMail(
        inbox_id=parent.inbox_id,
        to=[(names.get(a.lower(), "")[:_LONGEST_NAME], a) for a in main],
        cc=[(names.get(a.lower(), "")[:_LONGEST_NAME], a) for a in others],
        subject=parent.subject,
        text=text,
        in_reply_to=parent.id,
    )


def quoted_text(original: Message) -> str:
    """The text of a message as a reply quotes it, without what that message quotes itself."""
    who = original.from_name or original.from_address
    lines = (original.new_text or original.text).rstrip().split("\n")
    quoted = "\n".join(f"> {line}".rstrip() for line in lines)
    return f"On {original.date:%-d %b %Y at %H:%M} UTC, {who} wrote:\n{quoted}\n"


def forward_mail_of(original: Message, text: str, to: list[Pair]) -> OutgoingMail:
    """A forward: the original text below ours, with its attachments."""
    lines = [*_forwarded_head(original), "", original.text]
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


def _forwarded_head(original: Message) -> list[str]:
    return [
        "---------- Forwarded message ----------",
        f"From: {original.from_name} <{original.from_address}>".replace("  ", " "),
        f"Date: {original.date:%a, %d %b %Y %H:%M:%S} +0000",
        f"Subject: {original.subject}",
        f"To: {', '.join(original.to_addresses)}",
    ]


async def forward_html_of(ctx: RequestContext, original: Message, html: str) -> str:
    """The HTML of a forward: ours above the sanitised HTML, or the text, of the original."""
    (parsed,) = await ctx.parser.parse([await ctx.blobs.read(original.raw)])
    if parsed.html:
        quoted = await in_thread(sanitise_html, parsed.html)
    else:
        quoted = f"<pre>{escape(original.text)}</pre>"
    head = "<br>".join(escape(line) for line in _forwarded_head(original))
    return f"{html}\n<br><div>{head}</div><br>\n{quoted}"


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
    if sent >= (_MAX_OWN_LOOPS if await _answers_own_mail(ctx, original) else _MAX_AUTOMATIC):
        raise Conflict(
            f"{original.id} was sent automatically, and {sent} such mails were forwarded in its "
            "thread within a day; this looks like a mail loop"
        )


async def _answers_own_mail(ctx: RequestContext, message: Message) -> bool:
    ids = dict.fromkeys(filter(None, (message.in_reply_to, *reversed(message.references))))
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


log = logging.getLogger(__name__)


class RuleMail(SendOptions):
    """A mail that a rule sends about another."""

    message_id: MessageId
    rule_id: Annotated[str, Field(max_length=64)]
    value: str


def caller_of(job: RuleJob) -> Caller:
    """The caller of a rule job: it sees one inbox and no memories.

    All rules of one key share a separate send limit, so that incoming mail cannot use up the
    limit of the key itself. Rules without a recorded key share one per inbox.
    """
    return Caller(
        key_id=f"rules:{job.authority or job.inbox_id}",
        inboxes=only(job.inbox_id),
        accounts=NOTHING,
        namespaces=NOTHING,
        for_keys=job.authors or (job.authority,),
    )


async def run_rule_job(ctx: RequestContext, job: RuleJob) -> None:
    """Send a forward or a reply of a rule, once; nothing if the message was removed.

    Raises Forbidden if the key of the rule may no longer send, and what `send_once` raises.
    """
    if await ctx.store.message(job.message_id, ctx.visible) is None:
        return
    action = job.action
    why = refusal(await caller_for_rule_job(ctx, job), action, job.inbox_id)
    if why:
        raise Forbidden(with_advice([why])[0])
    record = AuditRecord(
        job.rule_id, f"rule_{action.type}", ctx.clock(), (job.message_id,), via=ctx.via
    )
    acting = replace(ctx, store=ctx.store.by(record))
    request = RuleMail(
        message_id=job.message_id, rule_id=job.rule_id, value=action.value, idempotency_key=job.id
    )
    for earlier_caller in (f"rules:{job.inbox_id}", f"rule:{job.rule_id}"):
        if await was_sent_by(ctx, earlier_caller, request):  # by an earlier version
            return
    message = await message_of(ctx, job.message_id)
    if action.type == "forward":
        await refuse_forward_loop(ctx, message)
        await send_once(acting, request, _forward)
        return
    try:
        await refuse_loop(ctx, message)
        await refuse_many_replies(ctx, await _reply(ctx, request), job.inbox_id)
    except Conflict as loop:
        log.info("rule.reply_suppressed", extra={"message_id": job.message_id, "reason": str(loop)})
        return
    await send_once(acting, request, _reply)


async def _forward(ctx: RequestContext, request: RuleMail) -> OutgoingMail:
    original = await message_of(ctx, request.message_id)
    outgoing_mail = forward_mail_of(original, "", [("", request.value)])
    outgoing_mail.headers = (("Auto-Submitted", "auto-generated"),)
    outgoing_mail.rule_id = request.rule_id
    return outgoing_mail


async def _reply(ctx: RequestContext, request: RuleMail) -> OutgoingMail:
    parent = await message_of(ctx, request.message_id)
    outgoing_mail = await reply_mail_of(ctx, parent, request.value)
    outgoing_mail.is_automatic = True
    outgoing_mail.rule_id = request.rule_id
    return outgoing_mail


async def draft_of(ctx: RequestContext, message: Message) -> StoredDraft:
    """A draft with the content of an outgoing message; it is not stored yet."""
    identity = await ctx.store.identity_at(message.from_address)
    raw = await ctx.blobs.read(message.raw)
    content = await in_thread(read_back, raw, identity.signature if identity else "")
    is_own_name = identity is not None and (identity.name, identity.email) == content.sender
    # A forward names the Message-ID of its original too, but is no reply.
    is_reply = content.subject == reply_subject(content.subject)
    arguments = {
        **({} if is_own_name else {"from": format_address(*content.sender)}),
        "inbox_id": message.inbox_id,
        "to": _written(content.to),
        "cc": _written(content.cc),
        "bcc": list(message.bcc_addresses),
        "subject": content.subject,
        "body_text": content.text,
        "body_html": content.html,
        "in_reply_to": message.in_reply_to if is_reply else None,
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
    return [format_address(name, address) for name, address in people]


def _attachment(file: OutgoingAttachment) -> dict[str, Any]:
    return {
        "filename": file.filename,
        "content_type": file.content_type,
        "content": b64encode(file.content).decode(),
    }
