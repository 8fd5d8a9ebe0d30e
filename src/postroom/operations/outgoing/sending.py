"""Sending: send, reply and forward."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from postroom.blocking import in_thread
from postroom.calls import request
from postroom.calls.context import RequestContext
from postroom.calls.operation import MessageId, OneMessage, message_of, operation
from postroom.calls.receipts import needs_read
from postroom.calls.request import (
    Accepts,
    Constraint,
    OptionalId,
    OptionalInboxName,
    argument,
    check_kinds,
    not_both,
    one_of,
)
from postroom.errors import InvalidInput, about_mail
from postroom.mail.addresses import format_address, parse_address_list
from postroom.mail.compose import reply_subject
from postroom.mail.html.html import html_to_text
from postroom.model.key import Scope
from postroom.model.mail.sending import ReplyPreview, Sent
from postroom.operations.inboxes import InboxId
from postroom.sending.mail_options import Addresses, MailOptions, addresses_of
from postroom.sending.outgoing_mail import AttachmentInputs, OutgoingMail, check_files
from postroom.sending.replies import (
    forward_html_of,
    forward_mail_of,
    quoted_text,
    refuse_loop,
    reply_mail_of,
)
from postroom.sending.submission import SendOptions, send_once

Subject = Annotated[
    str, argument("The subject.", "Hello", max_length=998), Accepts({"pattern": request.LINE})
]
Body = Annotated[str, Field(max_length=5_000_000)]


def _message_or_message_id(given: str | None) -> str | None:
    """Refuse the id of something else, which would pass for a Message-ID. Raises InvalidInput."""
    kind, mark, _ = (given or "").partition("_")
    if given and mark and kind in ("thr", "att", "inb", "drf") and "@" not in given:
        instead = "give it as thread_id" if kind == "thr" else "give the id of a message"
        raise InvalidInput(f"in_reply_to: {given} is not a msg_ id; {instead}")
    return given


def _thread_id(given: str | None) -> str | None:
    check_kinds(thread_id=given)
    return given


InReplyTo = Annotated[
    str | None,
    argument("What this answers: id or Message-ID.", "msg_4h8t2w", max_length=998),
    BeforeValidator(lambda given: given.strip() if isinstance(given, str) else given),
    AfterValidator(_message_or_message_id),
    Accepts({"pattern": request.MESSAGE_ID_OR_NONE, "maxLength": None}),
]
InThread = Annotated[
    OptionalId, AfterValidator(_thread_id), argument("Reply in this thread.", "thr_9d3f1x")
]
SOME_BODY = one_of(
    "body", ("body_text", "body_html"), "give body_text or body_html, or both", may_be_empty=True
)
NOT_BOTH = not_both(
    "answered", "in_reply_to", "thread_id", "give in_reply_to or thread_id, not both"
)


class SendEmail(SendOptions):
    """Send a plain-text mail without attachments; with thread_id it replies in that thread."""

    inbox_id: Annotated[InboxId, Field(description="The inbox to send from.")]
    recipient: Annotated[
        Annotated[str, Field(min_length=1, max_length=20_000)],
        argument("The address, or several with commas.", "ana@example.com"),
    ]
    subject: Subject
    body: Annotated[Body, argument("The text.", "Hi Ana, thanks!")]
    thread_id: InThread = None


@operation(Scope.SEND)
async def send_email(ctx: RequestContext, request: SendEmail) -> Sent:
    return await send_once(ctx, request, _plain_mail)


class SendEmailWithAttachments(SendEmail):
    """Send a plain-text mail with attachments; with thread_id it replies in that thread."""

    attachments: Annotated[AttachmentInputs, Field(min_length=1)]


@operation(Scope.SEND)
async def send_email_with_attachments(
    ctx: RequestContext, request: SendEmailWithAttachments
) -> Sent:
    check_files(ctx, request.attachments)
    return await send_once(ctx, request, _plain_mail)


async def _plain_mail(_: RequestContext, request: SendEmail) -> OutgoingMail:
    files = request.attachments if isinstance(request, SendEmailWithAttachments) else []
    return OutgoingMail(
        inbox_id=request.inbox_id,
        to=list(parse_address_list(request.recipient, field="recipient")),
        subject=request.subject,
        text=request.body,
        thread_id=request.thread_id,
        attachments_in=files,
    )


class MailArguments(MailOptions):
    """What a mail says, to whom, and from which inbox."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        one_of("recipients", ("to", "cc", "bcc")),
        SOME_BODY,
        NOT_BOTH,
    )
    to: Annotated[Addresses, argument("Recipients.", ["ana@example.com"])]
    subject: Subject
    body_text: Annotated[Body | None, argument("The text.", "Hi Ana, thanks!")] = None
    body_html: Annotated[Body | None, argument("The HTML version.", "<p>Hi Ana!</p>")] = None
    cc: Annotated[Addresses, argument("Copies to.", ["bo@example.com"])] = []
    bcc: Annotated[Addresses, argument("Hidden copies to.", ["cy@example.com"])] = []
    in_reply_to: InReplyTo = None
    attachments: AttachmentInputs = []
    inbox_id: Annotated[
        OptionalInboxName, argument("Inbox to send from, if several.", "inb_7k2m9q")
    ] = None
    sender: Annotated[
        str | None,
        argument(
            "Address to send from.",
            "support@postroom.localhost",
            alias="from",
            max_length=320,
        ),
        Accepts(request.MAILBOX_OR_NONE),
    ] = None
    thread_id: InThread = None


class SendMessage(MailArguments, SendOptions):
    """Send a mail, or a reply with in_reply_to; text, HTML or both."""


@operation(Scope.SEND)
async def send_message(ctx: RequestContext, request: SendMessage) -> Sent:
    check_files(ctx, request.attachments)
    return await send_once(ctx, request, outgoing_mail_of)


async def outgoing_mail_of(_: RequestContext, request: MailArguments) -> OutgoingMail:
    """The outgoing mail of a request."""
    return OutgoingMail(
        inbox_id=request.inbox_id,
        sender=request.sender,
        to=addresses_of("to", request.to),
        cc=addresses_of("cc", request.cc),
        bcc=addresses_of("bcc", request.bcc),
        subject=request.subject,
        text=request.body_text,
        html=request.body_html,
        in_reply_to=request.in_reply_to,
        thread_id=request.thread_id,
        attachments_in=list(request.attachments),
    )


class ReplyToMessage(SendOptions):
    """Reply to a message: recipients, subject and thread are taken from it."""

    message_id: MessageId
    body_text: Annotated[Body, argument("The text.", "Thanks, got it.")]
    body_html: Annotated[Body | None, argument("The HTML version.", "<p>Thanks, got it.</p>")] = (
        None
    )
    reply_all: Annotated[bool, argument("Reply to all its recipients.", True)] = False
    attachments: AttachmentInputs = []
    automatic: Annotated[
        bool, argument("An automatic reply; refused if it answers automatic mail.", True)
    ] = False


@operation(Scope.SEND)
async def reply_to_message(ctx: RequestContext, request: ReplyToMessage) -> Sent:
    check_files(ctx, request.attachments)
    with about_mail():
        return await send_once(ctx, request, outgoing_reply_of)


async def outgoing_reply_of(ctx: RequestContext, request: ReplyToMessage) -> OutgoingMail:
    """The outgoing mail of a reply. Raises NotFound, Conflict."""
    parent = await message_of(ctx, request.message_id)
    if request.automatic:
        await refuse_loop(ctx, parent)
    outgoing_mail = await reply_mail_of(ctx, parent, request.body_text, reply_all=request.reply_all)
    outgoing_mail.html = request.body_html
    outgoing_mail.attachments_in = list(request.attachments)
    outgoing_mail.is_automatic = request.automatic
    return outgoing_mail


class PreviewReply(OneMessage):
    """See who would get a reply to a message, without sending one."""

    reply_all: Annotated[bool, argument("Reply to all its recipients.", True)] = False


@operation(Scope.READ)
async def preview_reply(ctx: RequestContext, request: PreviewReply) -> ReplyPreview:
    parent = await message_of(ctx, request.message_id)
    mail = await reply_mail_of(ctx, parent, "", reply_all=request.reply_all)
    to, cc = (tuple(format_address(*pair) for pair in pairs) for pairs in (mail.to, mail.cc))
    subject, quoted = reply_subject(parent.subject), quoted_text(parent)
    return ReplyPreview(to, cc, subject, parent.inbox_id, quoted, message_id=parent.id)


class PreviewForward(OneMessage):
    """See what a forward of a message would say, without sending one."""


@operation(Scope.READ)
async def preview_forward(ctx: RequestContext, request: PreviewForward) -> ReplyPreview:
    original = await message_of(ctx, request.message_id)
    mail = forward_mail_of(original, "", [])
    text, about = mail.text or "", original.id
    return ReplyPreview((), (), mail.subject, original.inbox_id, text, message_id=about)


class ForwardMessage(SendOptions):
    """Forward a message with its attachments to someone else."""

    message_id: MessageId
    to: Annotated[Addresses, argument("Recipients.", ["ana@example.com"], min_length=1)]
    body_text: Annotated[Body, argument("The text above it.", "See below.")] = ""
    body_html: Annotated[Body | None, argument("Or in HTML.", "<p>See below.</p>")] = None
    cc: Annotated[Addresses, argument("Copies to.", ["bo@example.com"])] = []
    bcc: Annotated[Addresses, argument("Hidden copies to.", ["cy@example.com"])] = []
    attachments: Annotated[AttachmentInputs, Field(description="More files to send.")] = []


@operation(Scope.SEND)
async def forward_message(ctx: RequestContext, request: ForwardMessage) -> Sent:
    needs_read(ctx, "a forward sends stored mail to others")
    with about_mail():
        return await send_once(ctx, request, outgoing_forward_of)


async def outgoing_forward_of(ctx: RequestContext, request: ForwardMessage) -> OutgoingMail:
    """The outgoing mail of a forward. Raises NotFound."""
    original = await message_of(ctx, request.message_id)
    outgoing_mail = forward_mail_of(original, request.body_text, addresses_of("to", request.to))
    outgoing_mail.cc = addresses_of("cc", request.cc)
    outgoing_mail.bcc = addresses_of("bcc", request.bcc)
    outgoing_mail.attachments_in += request.attachments
    if request.body_html is not None:
        outgoing_mail.html = await forward_html_of(ctx, original, request.body_html)
        if not request.body_text:
            words = (await in_thread(html_to_text, request.body_html)).text
            outgoing_mail.text = f"{words}\n\n{outgoing_mail.text}"
    return outgoing_mail
