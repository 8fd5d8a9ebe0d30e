"""Sending: three names and a reply, one way out."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from postroom.mail.compose import parse_address_list
from postroom.model.key import Scope
from postroom.model.sending import Sent
from postroom.operations import forms
from postroom.operations.answering import forward_letter, reply_recipients
from postroom.operations.context import Context
from postroom.operations.enclosures import Enclosures
from postroom.operations.inboxes import InboxId
from postroom.operations.letters import Letter
from postroom.operations.loops import refuse_loop
from postroom.operations.messages import MessageId, message_of
from postroom.operations.operation import operation
from postroom.operations.posting import Sending, send_once
from postroom.operations.request import Accepts, OptionalId, Request, Together, not_both, one_of

Subject = Annotated[
    str,
    Field(max_length=998, description="The subject.", examples=["Hello"]),
    Accepts({"pattern": forms.LINE}),
]
Body = Annotated[str, Field(max_length=5_000_000)]
InReplyTo = Annotated[
    str | None,
    Field(
        max_length=998,
        description="The message this answers: its id or Message-ID.",
        examples=["msg_4h8t2w"],
    ),
    Accepts({"pattern": forms.MESSAGE_ID_OR_NONE, "maxLength": None}),
]
InThread = Annotated[
    OptionalId, Field(description="Reply in this thread.", examples=["thr_9d3f1x"])
]
NOT_BOTH = not_both("answered", "in_reply_to", "thread_id")


def _as_list(value: object) -> object:
    """Accept one text with commas where a list is wanted."""
    return [value] if isinstance(value, str) else value


Addresses = Annotated[
    list[Annotated[str, Accepts(forms.MAILBOX)]],
    BeforeValidator(_as_list),
    Field(max_length=500),
]


class SendEmail(Sending):
    """Send a plain-text mail without attachments; with thread_id it replies in that thread."""

    inbox_id: Annotated[InboxId, Field(description="The inbox to send from.")]
    recipient: Annotated[
        str,
        Field(
            min_length=1,
            max_length=20_000,
            description="The address, or several with commas.",
            examples=["ana@example.com"],
        ),
    ]
    subject: Subject
    body: Annotated[Body, Field(description="The text.", examples=["Hi Ana, thanks!"])]
    thread_id: InThread = None


@operation(Scope.SEND)
async def send_email(ctx: Context, request: SendEmail) -> Sent:
    return await send_once(ctx, request, _plain_letter)


class SendEmailWithAttachments(SendEmail):
    """Send a plain-text mail with attachments; with thread_id it replies in that thread."""

    attachments: Annotated[Enclosures, Field(min_length=1)]


@operation(Scope.SEND)
async def send_email_with_attachments(ctx: Context, request: SendEmailWithAttachments) -> Sent:
    return await send_once(ctx, request, _plain_letter)


async def _plain_letter(_: Context, request: SendEmail) -> Letter:
    files = request.attachments if isinstance(request, SendEmailWithAttachments) else []
    return Letter(
        inbox_id=request.inbox_id,
        to=list(parse_address_list(request.recipient, field="recipient")),
        subject=request.subject,
        text=request.body,
        thread_id=request.thread_id,
        enclosures=files,
    )


class Composed(Request):
    """What a mail says, to whom, and from which inbox."""

    together: ClassVar[tuple[Together, ...]] = (
        one_of("recipients", "to", "cc", "bcc"),
        one_of("body", "body_text", "body_html", may_be_empty=True),
        NOT_BOTH,
    )
    to: Annotated[Addresses, Field(description="Recipients.", examples=[["ana@example.com"]])]
    subject: Subject
    body_text: Annotated[
        Body | None, Field(description="The text.", examples=["Hi Ana, thanks!"])
    ] = None
    body_html: Annotated[
        Body | None, Field(description="The HTML version.", examples=["<p>Hi Ana, thanks!</p>"])
    ] = None
    cc: Annotated[Addresses, Field(description="Copies to.", examples=[["bo@example.com"]])] = []
    bcc: Annotated[
        Addresses, Field(description="Hidden copies to.", examples=[["cy@example.com"]])
    ] = []
    in_reply_to: InReplyTo = None
    attachments: Enclosures = []
    inbox_id: Annotated[
        OptionalId,
        Field(description="The inbox to send from, if there are several.", examples=["inb_7k2m9q"]),
    ] = None
    sender: Annotated[
        str | None,
        Field(
            alias="from",
            max_length=320,
            description="Or its address.",
            examples=["support@postroom.localhost"],
        ),
        Accepts(forms.MAILBOX_OR_NONE),
    ] = None
    thread_id: InThread = None

    @model_validator(mode="after")
    def _has_a_body(self) -> Self:
        if self.body_text is None and self.body_html is None:
            raise ValueError("give body_text or body_html, or both")
        if self.in_reply_to and self.thread_id:
            raise ValueError("give in_reply_to or thread_id, not both")
        return self


class SendMessage(Composed, Sending):
    """Send a mail with any of text, HTML, cc, bcc and attachments; in_reply_to makes it a reply."""


@operation(Scope.SEND)
async def send_message(ctx: Context, request: SendMessage) -> Sent:
    return await send_once(ctx, request, letter_of)


async def letter_of(_: Context, request: Composed) -> Letter:
    """The letter that somebody asks us to send."""
    return Letter(
        inbox_id=request.inbox_id,
        sender=request.sender,
        to=_addresses("to", request.to),
        cc=_addresses("cc", request.cc),
        bcc=_addresses("bcc", request.bcc),
        subject=request.subject,
        text=request.body_text,
        html=request.body_html,
        in_reply_to=request.in_reply_to,
        thread_id=request.thread_id,
        enclosures=list(request.attachments),
    )


def _addresses(field: str, texts: list[str]) -> list[tuple[str, str]]:
    return [
        pair
        for number, text in enumerate(texts)
        for pair in parse_address_list(text, field=f"{field}[{number}]")
    ]


class ReplyToMessage(Sending):
    """Reply to a message: recipients, subject and thread follow from it."""

    message_id: MessageId
    body_text: Annotated[Body, Field(description="The text.", examples=["Thanks, got it."])]
    body_html: Annotated[
        Body | None, Field(description="The HTML version.", examples=["<p>Thanks, got it.</p>"])
    ] = None
    reply_all: Annotated[
        bool, Field(description="To everyone who got it too.", examples=[True])
    ] = False
    attachments: Enclosures = []
    automatic: Annotated[
        bool, Field(description="No person wrote it: never answers machines.", examples=[True])
    ] = False


@operation(Scope.SEND)
async def reply_to_message(ctx: Context, request: ReplyToMessage) -> Sent:
    return await send_once(ctx, request, _reply)


async def _reply(ctx: Context, request: ReplyToMessage) -> Letter:
    parent = await message_of(ctx, request.message_id)
    if request.automatic:
        await refuse_loop(ctx, parent)
    to, cc = await reply_recipients(ctx, parent, reply_all=request.reply_all)
    return Letter(
        inbox_id=parent.inbox_id,
        to=to,
        cc=cc,
        subject=parent.subject,
        text=request.body_text,
        html=request.body_html,
        in_reply_to=parent.id,
        enclosures=list(request.attachments),
        is_automatic=request.automatic,
    )


class ForwardMessage(Sending):
    """Forward a message with its attachments to someone else."""

    message_id: MessageId
    to: Annotated[
        Addresses,
        Field(min_length=1, description="Recipients.", examples=[["ana@example.com"]]),
    ]
    body_text: Annotated[
        Body, Field(description="What to say above it.", examples=["See below."])
    ] = ""


@operation(Scope.SEND)
async def forward_message(ctx: Context, request: ForwardMessage) -> Sent:
    return await send_once(ctx, request, _forward)


async def _forward(ctx: Context, request: ForwardMessage) -> Letter:
    original = await message_of(ctx, request.message_id)
    return forward_letter(original, request.body_text, _addresses("to", request.to))
