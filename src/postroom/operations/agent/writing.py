"""Writing mail, now, later or as a draft; mail that is not out yet; undoing what was done."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, model_validator

from postroom.blocking import in_thread
from postroom.calls.context import RequestContext
from postroom.calls.operation import message_of, only_inbox, operation, require_scope
from postroom.calls.receipts import note_suspicious
from postroom.calls.request import (
    MAILBOX_OR_NONE,
    Accepts,
    Id,
    Limit,
    OptionalId,
    Request,
    argument,
    one_of,
)
from postroom.errors import InvalidInput, MailError, about_mail
from postroom.mail.addresses import format_address
from postroom.mail.html.html import html_to_text
from postroom.mail.text.fold import MAX_WORDS, fold, words_of
from postroom.model.agent import (
    ChangeOutcome,
    FoundMail,
    MailLine,
    NotRead,
    SendOutcome,
    SendOutcomes,
)
from postroom.model.key import Scope
from postroom.model.mail.message import ActionResult
from postroom.model.mail.sending import Draft, OutboxEntry, Sent
from postroom.model.mail.storage import MessageQuery
from postroom.model.page import Slice
from postroom.operations.agent.finding import Ids, some_of
from postroom.operations.outgoing.drafts import (
    CreateDraft,
    DeleteDraft,
    ListDrafts,
    SendDraft,
    UpdateDraft,
    create_draft,
    delete_draft,
    list_drafts,
    send_draft,
    update_draft,
)
from postroom.operations.outgoing.outbox import (
    CancelMessage,
    ListOutbox,
    cancel_message,
    list_outbox,
)
from postroom.operations.outgoing.sending import (
    Body,
    ForwardMessage,
    ReplyToMessage,
    SendMessage,
    Subject,
    forward_message,
    outgoing_forward_of,
    outgoing_reply_of,
    reply_to_message,
    send_message,
)
from postroom.operations.rules import DeleteRule, UndoRulePlan, delete_rule, undo_rule_plan
from postroom.sending.mail_options import Addresses, MailOptions
from postroom.sending.outgoing_mail import AttachmentInput
from postroom.sending.submission import SendOptions

W = TypeVar("W", bound="AgentMailArguments")
_RECIPIENT = re.compile(r"(to|cc|bcc)\[(\d+)\]")
_MAX_KNOWN = 5
_SHOWN = 5
_OUT = ("delivered", "sent", "captured", "queued", "scheduled", "held")


def _as_inputs(value: object) -> object:
    """Accept the bare id of an attachment."""
    if not isinstance(value, list):
        return value
    return [{"attachment_id": item} if isinstance(item, str) else item for item in value]


Files = Annotated[
    list[AttachmentInput],
    BeforeValidator(_as_inputs),
    argument(
        "By id, or new in base64.",
        [{"attachment_id": "att_6p1r4z"}, {"filename": "a.txt", "content": "SGk="}],
    ),
]


Answered = Annotated[Ids, argument("The messages.", ["msg_4h8t2w"], min_length=1, max_length=20)]


class AgentMailArguments(SendOptions):
    """What send, reply and forward have in common."""

    body: Annotated[Body | None, argument("The text.", "Hi Ana, thanks!")] = None
    html: Annotated[Body | None, argument("The HTML version.", "<p>Hi!</p>")] = None
    attachments: Files = []
    draft: Annotated[bool, argument("Save a draft only.", True)] = False


class SendMail(AgentMailArguments):
    """Send a mail, or a draft by its id; undo cancels it while it waits."""

    to: Annotated[Addresses, argument("Recipients.", ["ana@example.com"])] = []
    subject: Subject = ""
    cc: Annotated[Addresses, argument("Copies.", ["bo@example.com"])] = []
    bcc: Annotated[Addresses, argument("Hidden copies.", ["cy@example.com"])] = []
    sender: Annotated[
        str | None,
        argument("Your address to send from.", "me@example.com", alias="from", max_length=320),
        Accepts(MAILBOX_OR_NONE),
    ] = None
    draft_id: Annotated[OptionalId, argument("Send this draft.", "drf_5t2k8n")] = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.draft_id is None and self.body is None and self.html is None:
            raise ValueError("body: is required")
        if self.draft_id is None and not (self.to or self.cc or self.bcc):
            raise ValueError("to: is required")
        if self.draft_id is not None and self.sender is not None:
            raise ValueError("from: a draft keeps its sender; write a new mail instead")
        return self


@operation(Scope.SEND)
async def send_mail(ctx: RequestContext, request: SendMail) -> SendOutcome:
    async with _naming_known_addresses(ctx, request):
        return await _send(ctx, request)


async def _send(ctx: RequestContext, request: SendMail) -> SendOutcome:
    mail = _arguments(request, "to", "cc", "bcc", "subject")
    if request.draft_id is not None:
        return await _send_draft(ctx, request, mail)
    inbox_id = None if request.sender else (await only_inbox(ctx, argument="from")).id
    mail |= {"from": request.sender, "inbox_id": inbox_id}
    if request.draft:
        return await _saved(ctx, mail)
    return send_outcome(await send_message(ctx, SendMessage(**mail, **_sending(request))))


async def _send_draft(ctx: RequestContext, request: SendMail, mail: dict[str, Any]) -> SendOutcome:
    draft_id = request.draft_id or ""
    changes = {name: value for name, value in mail.items() if value not in (None, [], "")}
    if changes:
        await update_draft(ctx, UpdateDraft(draft_id=draft_id, **changes))
    if request.draft:
        return SendOutcome(draft_id, "draft")
    key = request.idempotency_key
    return send_outcome(await send_draft(ctx, SendDraft(draft_id=draft_id, idempotency_key=key)))


class ReplyMail(AgentMailArguments):
    """Reply to messages. Also accepts attachments, send_at and idempotency_key, like send_mail."""

    constraints = (one_of("text", ("body", "html"), "body: is required", may_be_empty=True),)
    ids: Answered
    all: Annotated[bool, argument("Reply to all its recipients.", True)] = False


@operation(Scope.SEND)
async def reply_mail(ctx: RequestContext, request: ReplyMail) -> SendOutcomes:
    return await _each(ctx, request, request.ids, _reply)


async def _reply(ctx: RequestContext, request: ReplyMail, message_id: str) -> SendOutcome:
    mail = _arguments(request)
    if request.body is None:
        mail["body_text"] = (await in_thread(html_to_text, request.html or "")).text
    sending = _sending(request, message_id)
    asked = ReplyToMessage(message_id=message_id, reply_all=request.all, **mail, **sending)
    if not request.draft:
        return send_outcome(await reply_to_message(ctx, asked))
    reply = await outgoing_reply_of(ctx, asked)
    to, cc = ([format_address(*pair) for pair in pairs] for pairs in (reply.to, reply.cc))
    return await _saved(ctx, {**mail, "to": to, "cc": cc, "in_reply_to": message_id})


class ForwardMail(AgentMailArguments):
    """Forward messages with their attachments, each in its own mail."""

    ids: Answered
    to: Annotated[Addresses, argument("Recipients.", ["ana@example.com"], min_length=1)]
    body: Annotated[Body, argument("The text above it.", "See below.")] = ""


@operation(Scope.SEND)
async def forward_mail(ctx: RequestContext, request: ForwardMail) -> SendOutcomes:
    async with _naming_known_addresses(ctx, request):
        return await _each(ctx, request, request.ids, _forward)


async def _forward(ctx: RequestContext, request: ForwardMail, message_id: str) -> SendOutcome:
    mail = _arguments(request, "to")
    asked = ForwardMessage(message_id=message_id, **mail, **_sending(request, message_id))
    if not request.draft:
        return send_outcome(await forward_message(ctx, asked))
    # The draft itself names no message.
    await note_suspicious(ctx, await message_of(ctx, message_id))
    forward = await outgoing_forward_of(ctx, asked)
    mail |= {"subject": forward.subject, "inbox_id": forward.inbox_id}
    mail |= {"body_text": forward.text, "body_html": forward.html}
    return await _saved(ctx, {**mail, "attachments": forward.attachments_in})


async def _each(
    ctx: RequestContext,
    request: W,
    ids: Sequence[str],
    write: Callable[[RequestContext, W, str], Awaitable[SendOutcome]],
) -> SendOutcomes:
    """One mail for each message; an id that fails does not hide what was sent for the others."""
    unique = list(dict.fromkeys(ids))
    found: list[SendOutcome] = []
    for message_id in unique:
        try:
            with about_mail():
                found.append(await write(ctx, request, message_id))
        except MailError as error:
            if len(unique) == 1:
                raise
            found.append(SendOutcome(message_id, "failed", note=str(error)))
    return SendOutcomes(tuple(found))


@asynccontextmanager
async def _naming_known_addresses(
    ctx: RequestContext, request: SendMail | ForwardMail
) -> AsyncIterator[None]:
    """Add to the error about a name in place of an address whose addresses are known."""
    try:
        yield
    except InvalidInput as error:
        place = _RECIPIENT.fullmatch(str(error.details.get("field", "")))
        if place and Scope.READ in ctx.caller.scopes:
            name = getattr(request, place[1])[int(place[2])]
            if known := await _addresses_of(ctx, name):
                error.args = (f"{error}; known are {', '.join(known)}", *error.args[1:])
                error.is_untrusted = True
        raise


async def _addresses_of(ctx: RequestContext, name: str) -> list[str]:
    """Addresses from which mail came under a name, and those of inboxes."""
    words = words_of(fold(name))[:MAX_WORDS]
    query = MessageQuery(visible=ctx.visible, sender_words=words, page=Slice(limit=50))
    senders = [row.from_address for row in (await ctx.store.messages(query)).rows]
    inboxes = (await ctx.store.inboxes(ctx.visible, Slice(limit=100))).rows
    own = [i.address for i in inboxes if all(w in fold(f"{i.name} {i.address}") for w in words)]
    return list(dict.fromkeys([*own, *senders]))[:_MAX_KNOWN]


_OF_EVERY_MAIL = ("attachments", "send_at", *MailOptions.model_fields)


def _arguments(request: AgentMailArguments, *names: str) -> dict[str, Any]:
    """The arguments of a mail in the words of the other toolsets, also for a draft."""
    texts = {"body_text": request.body, "body_html": request.html}
    return texts | {name: getattr(request, name) for name in (*names, *_OF_EVERY_MAIL)}


def _sending(request: AgentMailArguments, message_id: str = "") -> dict[str, Any]:
    """How to send a mail; each of several mails has its own key."""
    names = SendOptions.model_fields.keys() - _OF_EVERY_MAIL
    arguments = {name: getattr(request, name) for name in names}
    if message_id and request.idempotency_key:
        arguments["idempotency_key"] = f"{request.idempotency_key[:180]}/{message_id}"
    return arguments


async def _saved(ctx: RequestContext, mail: dict[str, Any]) -> SendOutcome:
    draft: Draft = await create_draft(ctx, CreateDraft(**mail))
    return SendOutcome(draft.id, "draft", send_at=draft.send_at)


def send_outcome(sent: Sent) -> SendOutcome:
    """The outcome of a send in a line; recipients are named if something is wrong."""
    wrong = tuple(
        f"{r.address}: {r.status}" + (f" ({r.detail})" if r.detail else "")
        for r in sent.recipients
        if r.status not in _OUT
    )
    return SendOutcome(
        id=sent.message_id,
        status=sent.status,
        send_at=sent.send_at,
        failed=wrong or None,
        deduplicated=sent.deduplicated,
        warnings=sent.warnings or None,
    )


class ListOutgoing(Request):
    """List drafts, and mail that has failed or is not sent yet."""

    limit: Limit = 20


@operation(Scope.READ)
async def list_outgoing(ctx: RequestContext, request: ListOutgoing) -> FoundMail:
    waiting = await list_outbox(ctx, ListOutbox(limit=request.limit))
    drafts = await list_drafts(ctx, ListDrafts(limit=request.limit))
    lines = [*map(_entry_line, waiting.results), *map(draft_line, drafts.results)]
    total = waiting.total + drafts.total
    hint = "limit shows up to 100" if total > request.limit else None
    return FoundMail(total, tuple(lines[: request.limit]), hint=hint)


def _entry_line(entry: OutboxEntry) -> MailLine:
    to, to_count = some_of(tuple(recipient.address for recipient in entry.recipients), _SHOWN)
    return MailLine(
        id=entry.message_id,
        subject=entry.subject,
        date=None if entry.queued_at == entry.send_at else entry.queued_at,
        to=to,
        to_count=to_count,
        status=entry.status,
        send_at=entry.send_at,
    )


def draft_line(draft: Draft, **shown: Any) -> MailLine:
    """A draft in short; *shown* adds its text and more."""
    to, to_count = some_of(draft.to, _SHOWN)
    return MailLine(
        id=draft.id,
        subject=draft.subject,
        date=draft.updated_at,
        to=to,
        to_count=to_count,
        status="draft",
        send_at=draft.send_at,
        **shown,
    )


class Undo(Request):
    """Undo a change (undo_id), cancel unsent mail (then a draft), or delete a draft or rule."""

    id: Annotated[Id, argument("undo_id, or the id of a mail, draft or rule.", "pln_5r2x7h")]


@operation(Scope.WRITE, other_scope=Scope.SEND, destroys=True)
async def undo(ctx: RequestContext, request: Undo) -> ChangeOutcome | SendOutcome:
    if request.id.startswith("msg_"):
        require_scope(ctx, Scope.SEND)
        sent = await cancel_message(ctx, CancelMessage(message_id=request.id))
        return SendOutcome(sent.draft_id or request.id, "draft")
    require_scope(ctx, Scope.WRITE)
    if request.id.startswith("rul_"):
        rule = await delete_rule(ctx, DeleteRule(rule_id=request.id))
        return SendOutcome(rule.id, "deleted")
    if request.id.startswith("drf_"):
        await delete_draft(ctx, DeleteDraft(draft_id=request.id))
        return SendOutcome(request.id, "deleted")
    if not request.id.startswith("pln_"):
        raise InvalidInput(
            f"{request.id} cannot be undone; give an undo_id (pln_…), a mail that has not been "
            "sent (msg_…), a draft (drf_…) or a rule (rul_…)"
        )
    return change_outcome(await undo_rule_plan(ctx, UndoRulePlan(plan_id=request.id)))


def change_outcome(result: ActionResult) -> ChangeOutcome:
    """What a change did, in a line."""
    failed = tuple(NotRead(item.message_id, item.message) for item in result.failed[:20])
    return ChangeOutcome(
        result.status, len(result.succeeded), undo_id=result.undo_id, failed=failed or None
    )
